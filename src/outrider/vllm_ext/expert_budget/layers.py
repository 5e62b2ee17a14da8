"""Finds the MoE layers of a loaded model, and says which of them a budget can hold.

What it relies on in the engine is guarded in patches/ledger.yaml, entry expert-budget.
"""

from __future__ import annotations

from typing import Any

from outrider.vllm_ext.expert_budget.routing import Routing

# Routers whose choice `reroute` can repeat.
_PLAIN = frozenset({"FusedTopKRouter", "FusedTopKBiasRouter", "GroupedTopKRouter", "CPURouter"})


class BudgetError(RuntimeError):
    """The budget cannot be kept in this engine; it must not start, for it would silently serve without one."""


def moe_layers(model: Any) -> list[Any]:
    """The MoE runners of a model, in the order of its layers."""
    from vllm.model_executor.layers.fused_moe.runner.moe_runner import MoERunner  # noqa: PLC0415

    return [module for module in model.modules() if isinstance(module, MoERunner)]


def obstacle(runner: Any) -> str | None:
    """Why a layer's router would not be asked, or not be the last word; None if it will be.

    Args:
        runner: the engine's MoERunner, weights loaded.
    """
    from vllm.model_executor.layers.fused_moe.router.base_router import BaseRouter  # noqa: PLC0415

    method = runner.routed_experts.quant_method
    if method.is_monolithic:
        kernel = getattr(method, "experts_cls", None)
        by = f"{method.method_name}, kernel {kernel.__name__}" if kernel is not None else method.method_name
        return f"{by} routes inside its fused kernel (monolithic); choose a modular one, e.g. by --moe-backend"
    router = runner.router
    if not isinstance(router, BaseRouter):
        return f"router {type(router).__name__} has no _compute_routing"
    if getattr(router, "num_fused_shared_experts", 0) > 0 or getattr(runner, "_fse_fuse_gate", False):
        return f"router {type(router).__name__} routes shared experts with the others"
    config = runner.moe_config
    if config.dp_size > 1 or config.is_sequence_parallel:
        return "data parallel or sequence parallel MoE: ranks hold different tokens and would choose different experts"
    return None


def routing_of(router: Any) -> Routing:
    """How a router makes weights.

    Raises:
        BudgetError: in a way that re-routing cannot repeat.
    """
    name = type(router).__name__
    if name not in _PLAIN:
        raise BudgetError(f"router {name} is none of {', '.join(sorted(_PLAIN))}; mode drop works with any router")
    grouped = name == "GroupedTopKRouter" or (name == "CPURouter" and router.use_grouped_topk)
    unlike = [
        (grouped and router.num_expert_group != router.topk_group, "groups of experts that exclude each other"),
        (router.scoring_func not in {"softmax", "sigmoid"}, f"scoring {router.scoring_func}"),
        (getattr(router, "custom_routing_function", None) is not None, "a routing function of the model's own"),
        (getattr(router, "_hash_indices_table", None) is not None, "experts chosen by a table"),
        (getattr(router, "bias_vl", None) is not None, "a second bias for image tokens"),
    ]
    for applies, what in unlike:
        if applies:
            raise BudgetError(f"router {name} has {what}; mode drop works with any router")
    return Routing(router.scoring_func, bool(router.renormalize), _scale(router, grouped=grouped))


def _scale(router: Any, *, grouped: bool) -> float:
    # The CPU router scales in its grouped form only; the plain top-k router of CUDA never does.
    if type(router).__name__ == "CPURouter" and not grouped:
        return 1.0
    return float(getattr(router, "routed_scaling_factor", 1.0))
