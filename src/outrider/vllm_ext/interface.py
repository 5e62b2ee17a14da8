"""What the utility scheduler relies on in vLLM, as dotted names; read from the engine's source, not from a running one.

`preflight` compares them with the table of the pinned version; the patch ledger (entry utility-scheduler) guards the
code behind them.
"""

REQUIRED = frozenset(
    {
        "ModelRunnerOutput.req_id_to_index",
        "ModelRunnerOutput.sampled_token_ids",
        "Scheduler.dynamic_sd_lookup",
        "Scheduler.num_spec_tokens",
        "Scheduler.requests",
        "Scheduler.shutdown(self)",
        "Scheduler.update_from_output(self, scheduler_output, model_runner_output)",
        "SchedulerConfig.async_scheduling",
        "SchedulerConfig.scheduler_cls",
        "SchedulerOutput.num_scheduled_tokens",
        "SchedulerOutput.num_spec_tokens_to_schedule",
        "SchedulerOutput.scheduled_new_reqs",
        "SchedulerOutput.total_num_scheduled_tokens",
    }
)
