"""Layers that a budget can hold and those that it cannot, on the engine's own routers; no engine is started."""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

import pytest

from outrider.vllm_ext.expert_budget.layers import BudgetError, obstacle, routing_of
from outrider.vllm_ext.expert_budget.routing import Routing

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]


def made(module: str, name: str, **changes: Any) -> Any:
    """A router of the engine, which is imported when a test asks for it and not when tests are collected."""
    routers = importlib.import_module(f"vllm.model_executor.layers.fused_moe.router.{module}")
    return getattr(routers, name)(top_k=2, global_num_experts=8, **changes)


def cpu_router(**changes: Any) -> Any:
    return made("cpu_router", "CPURouter", **changes)


def runner(router: Any = None, *, monolithic: bool = False, **config: Any) -> SimpleNamespace:
    method = SimpleNamespace(is_monolithic=monolithic, method_name="Int4Method", experts_cls=dict)
    return SimpleNamespace(
        router=router or cpu_router(),
        routed_experts=SimpleNamespace(quant_method=method),
        moe_config=SimpleNamespace(**({"dp_size": 1, "is_sequence_parallel": False} | config)),
    )


def test_a_modular_layer_with_a_router_of_the_engine_has_no_obstacle() -> None:
    assert obstacle(runner()) is None


@pytest.mark.parametrize(
    ("layer", "says"),
    [
        (lambda: runner(monolithic=True), "Int4Method, kernel dict routes inside its fused kernel"),
        (lambda: runner(SimpleNamespace()), "router SimpleNamespace has no _compute_routing"),
        (lambda: runner(dp_size=2), "data parallel"),
        (lambda: runner(is_sequence_parallel=True), "sequence parallel"),
    ],
    ids=["monolithic", "foreign router", "data parallel", "sequence parallel"],
)
def test_an_obstacle_is_named(layer: Any, says: str) -> None:
    assert says in str(obstacle(layer()))


def test_shared_experts_that_are_routed_with_the_others_are_an_obstacle() -> None:
    router = made("fused_topk_bias_router", "FusedTopKBiasRouter", num_fused_shared_experts=1)
    assert "routes shared experts" in str(obstacle(runner(router)))


@pytest.mark.parametrize(
    ("settings", "routing"),
    [
        ({}, Routing("softmax", renormalize=True)),
        ({"renormalize": False}, Routing("softmax", renormalize=False)),
        (
            {"use_grouped_topk": True, "num_expert_group": 1, "topk_group": 1, "scoring_func": "sigmoid",
             "routed_scaling_factor": 2.5},
            Routing("sigmoid", renormalize=True, scale=2.5),
        ),
        (
            {"use_grouped_topk": True, "num_expert_group": 4, "topk_group": 4, "scoring_func": "sigmoid"},
            Routing("sigmoid", renormalize=True),
        ),
    ],
    ids=["softmax", "not renormalised", "deepseek, one group", "groups that exclude nothing"],
)  # fmt: skip
def test_routing_is_read_from_the_router(settings: dict[str, Any], routing: Routing) -> None:
    assert routing_of(cpu_router(**settings)) == routing


def test_the_routers_of_cuda_are_read_alike() -> None:
    biased = made("fused_topk_bias_router", "FusedTopKBiasRouter", scoring_func="sigmoid", routed_scaling_factor=2.827)
    assert routing_of(biased) == Routing("sigmoid", renormalize=True, scale=2.827)
    assert routing_of(made("fused_topk_router", "FusedTopKRouter")) == Routing("softmax", renormalize=True)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"use_grouped_topk": True, "num_expert_group": 8, "topk_group": 4, "scoring_func": "sigmoid"}, "groups"),
        ({"scoring_func": "sqrtsoftplus"}, "scoring sqrtsoftplus"),
        ({"custom_routing_function": max}, "a routing function of the model's own"),
    ],
)
def test_a_choice_that_rerouting_cannot_repeat_is_refused_and_drop_is_offered(
    settings: dict[str, Any], says: str
) -> None:
    with pytest.raises(BudgetError, match=f"{says}.*mode drop works with any router"):
        routing_of(cpu_router(**settings))
