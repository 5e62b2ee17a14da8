"""What the expert budget relies on in vLLM, as dotted names; read from the engine's source, not from a running one.

`preflight` compares them with the table of the pinned version; the patch ledger (entry expert-budget) guards the code
behind them.
"""

REQUIRED = frozenset(
    {
        "BaseRouter._compute_routing(self, hidden_states, router_logits, indices_type)",
        "BaseRouter.global_num_experts",
        "BaseRouter.top_k",
        "CachedRequestData.num_computed_tokens",
        "CachedRequestData.num_output_tokens",
        "CachedRequestData.req_ids",
        "CachedRequestData.resumed_req_ids",
        "FusedMoEMethodBase.is_monolithic(self)",
        "MoERunner.layer_name",
        "MoERunner.moe_config",
        "MoERunner.routed_experts",
        "MoERunner.router",
        "NewRequestData.prefill_token_ids",
        "NewRequestData.prompt_len(self)",
        "ParallelConfig.worker_extension_cls",
        "SchedulerOutput.finished_req_ids",
        "SchedulerOutput.scheduled_cached_reqs",
        "SchedulerOutput.scheduled_new_reqs",
        "SchedulerOutput.total_num_scheduled_tokens",
        "VllmConfig.additional_config",
        "Worker.compile_or_warm_up_model(self)",
        "Worker.execute_model(self, scheduler_output)",
        "Worker.load_model(self)",
    }
)
