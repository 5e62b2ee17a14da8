from __future__ import annotations

import pytest
from typer.testing import CliRunner

from outrider.campaign.step_cost import step_cost_stack
from outrider.cli import app
from outrider.engine import adapter
from outrider.errors import CampaignError
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
