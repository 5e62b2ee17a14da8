"""Puts the budget behind each router of a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from outrider.vllm_ext.expert_budget.layers import BudgetError, moe_layers, obstacle, routing_of
from outrider.vllm_ext.expert_budget.state import Budget, Layer

if TYPE_CHECKING:
    from outrider.vllm_ext.expert_budget.settings import Settings

Tensor = Any


def wrap_model(model: Any, settings: Settings, device: Any) -> Budget:
    """Check every MoE layer first, then wrap them all.

    Args:
        model: the target, weights loaded and ready for its kernels.
        settings: the budget.
        device: of the model.

    Raises:
        BudgetError: a layer whose router would not be consulted or cannot be followed; or no MoE layer at all.
        SettingsError: B is below top_k.
    """
    runners = moe_layers(model)
    if not runners:
        raise BudgetError(
            f"expert budget: {type(model).__name__} has no MoE layer that the engine routes through FusedMoE; "
            "take the budget out of this variant"
        )
    layers = [_layer(runner, settings) for runner in runners]
    shapes = {(layer.experts, layer.per_token) for layer in layers}
    if len(shapes) > 1:
        raise BudgetError(f"expert budget: MoE layers of different shapes (experts, top_k): {sorted(shapes)}")
    for layer in layers:
        settings.budget(1, layer.experts, layer.per_token)
    budget = Budget(settings, layers, device)
    for index, runner in enumerate(runners):
        _wrap(runner.router, index, budget.route)
    return budget


def _layer(runner: Any, settings: Settings) -> Layer:
    if (reason := obstacle(runner)) is not None:
        raise BudgetError(f"expert budget: {runner.layer_name}: {reason}")
    router, routing = runner.router, None
    if settings.mode == "reroute":
        try:
            routing = routing_of(router)
        except BudgetError as error:
            raise BudgetError(f"expert budget: {runner.layer_name}: {error}") from None
    experts = getattr(runner.moe_config, "num_logical_experts", router.global_num_experts)
    return Layer(runner.layer_name, routing, int(experts), int(router.top_k))


def _wrap(router: Any, index: int, route: Any) -> None:
    engine_routing = router._compute_routing  # noqa: SLF001 - the engine's one method that all its routers have

    def compute_routing(
        hidden_states: Tensor, router_logits: Tensor, indices_type: Any, *, input_ids: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        weights, ids = engine_routing(hidden_states, router_logits, indices_type, input_ids=input_ids)
        bias = getattr(router, "e_score_correction_bias", None)
        fresh: tuple[Tensor, Tensor] = route(index, weights, ids, router_logits, bias)
        return fresh

    router._compute_routing = compute_routing  # noqa: SLF001
