from __future__ import annotations

import pytest
from typer.testing import CliRunner

from outrider.campaign.plan import CampaignPlan
from outrider.campaign.step_cost import step_cost_stack
from outrider.cli import app
from outrider.engine import adapter
from outrider.errors import CampaignError
from outrider.load.arrivals import schedule
from outrider.load.plan import Closed
from outrider.preflight.run import run_preflight
from outrider.stack import find_stack


def test_one_variant_a_k_under_synthetic_acceptance() -> None:
    stack = step_cost_stack(find_stack("kimi-k2.5-rtx6000x8"), [3, 1])
    assert list(stack.variants) == ["baseline", "step-k1", "step-k3"]
    spec = stack.variants["step-k3"].speculation
    assert spec is not None
    assert spec.k == 3
    assert spec.options == {"rejection_sample_method": "synthetic", "synthetic_acceptance_length": 2.41}
    assert stack.campaign.variants == tuple(stack.variants)


@pytest.mark.parametrize("name", ["kimi-k2.5-rtx6000x8", "kimi-shape8-h200"])
def test_the_engine_takes_the_variants(name: str) -> None:
    stack = step_cost_stack(find_stack(name), [1, 7])
    found = run_preflight(stack, "step-k7").findings
    assert [f.code for f in found if f.severity == "error" and f.code.startswith("SPEC")] == []
    launch = adapter("vllm").launch(stack, "step-k7", host="h", port=1, model_dir=None, drafter_dir=None)
    assert "synthetic" in " ".join(launch.argv)


def test_a_cpu_engine_is_refused_with_the_reason() -> None:
    result = CliRunner().invoke(app, ["campaign", "smollm2-cpu", "--step-cost", "--plan"])
    assert isinstance(result.exception, CampaignError)
    assert "no synthetic mode" in str(result.exception)


def test_a_k_of_zero_is_no_step_cost() -> None:
    with pytest.raises(CampaignError, match="above 0"):
        step_cost_stack(find_stack("kimi-k2.5-rtx6000x8"), [0])


def test_every_batch_of_a_power_of_two_has_a_graph_of_its_own() -> None:
    stack = step_cost_stack(find_stack("smollm2-h200"), [5])
    config = stack.variants["step-k5"].flags.get("compilation-config")
    assert config is None  # the stack says itself how far its graphs reach
    stack = step_cost_stack(find_stack("kimi-shape8-h200"), [5])
    config = stack.variants["step-k5"].flags["compilation-config"]
    assert config["cudagraph_capture_sizes"] == [6, 12, 24, 48, 96, 192, 384, 768]


def test_its_cells_are_waves_of_whole_rounds_without_a_second_start_of_baseline() -> None:
    stack = step_cost_stack(find_stack("kimi-shape8-h200"), [3])
    plan = CampaignPlan.for_stack(stack, requests=12, repeats=2, step_cost=True)
    assert plan.workloads == ("random-64",)
    assert [plan.requests_at(users) for users in (1, 5, 64)] == [12, 15, 128]
    assert {plan.distinct_prompts(key) for key in plan.cells()} == {None}
    variants = [key.variant for key in plan.cells()]
    assert variants == sorted(variants)  # one engine after the other, each once
    with pytest.raises(ValueError, match="closed loop has no schedule"):
        schedule(Closed(concurrency=2, waves=True), 0)


def test_waves_of_long_prompts_ask_what_the_warm_up_has_read() -> None:
    stack = step_cost_stack(find_stack("kimi-shape8-h200"), [3])
    plan = CampaignPlan.for_stack(stack, workloads=["random-2048"], concurrency=[2, 32], step_cost=True)
    assert {(key.concurrency, plan.distinct_prompts(key)) for key in plan.cells()} == {(2, 2), (32, 32)}
    usual = CampaignPlan.for_stack(stack, workloads=["long-2k"], concurrency=[2])
    assert {usual.distinct_prompts(key) for key in usual.cells()} == {None}
