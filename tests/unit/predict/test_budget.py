"""Step time against an expert budget: bytes fall from the union of experts to B, and nothing else changes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from outrider.cli import app
from outrider.predict.budget import BudgetStep, budget_steps
from outrider.predict.errors import PredictError
from outrider.predict.session import open_session
from outrider.stack import find_stack

if TYPE_CHECKING:
    from pathlib import Path

    from outrider.predict.fit import Fit


@pytest.fixture(scope="module")
def fit() -> Fit:
    return open_session(find_stack("kimi-k2.5-rtx6000x8"), []).fit


def steps(fit: Fit, *budgets: int, batch: int = 16) -> list[BudgetStep]:
    return budget_steps(fit, budgets, batches=[batch], k=3, context=1024.0)


def test_time_falls_with_the_bytes_of_the_experts_left_out(fit: Fit) -> None:
    none, *bounded = steps(fit, 128, 96, 64)
    machine, factors = fit.machine, fit.factors
    for one in bounded:
        assert one.experts is not None
        bytes_saved = (none.union - one.experts) * machine.expert_bytes * machine.moe_layers
        seconds = bytes_saved / (machine.bandwidth * factors.expert_stream)
        assert none.step_s.mid - one.step_s.mid == pytest.approx(seconds)
    times = [one.step_s.mid for one in (none, *bounded)]
    assert times == sorted(times, reverse=True)


def test_a_budget_above_the_union_saves_nothing(fit: Fit) -> None:
    none, bounded = steps(fit, 384, batch=1)
    assert none.union < 384
    assert bounded.step_s == none.step_s
    assert (bounded.ratio.low, bounded.ratio.mid, bounded.ratio.high) == (1.0, 1.0, 1.0)


def test_intervals_of_the_ratio_hold_it(fit: Fit) -> None:
    for one in steps(fit, 64, 128):
        assert one.ratio.low <= one.ratio.mid <= one.ratio.high <= 1.0


def test_a_budget_below_top_k_is_refused(fit: Fit) -> None:
    with pytest.raises(PredictError, match="below top_k"):
        steps(fit, 7)


def test_a_target_without_experts_is_refused() -> None:
    dense = open_session(find_stack("smollm2-cpu"), []).fit
    with pytest.raises(PredictError, match="no routed experts"):
        steps(dense, 8)


def test_the_command_writes_table_chart_and_json(tmp_path: Path) -> None:
    done = CliRunner().invoke(
        app,
        ["predict", "budget", "kimi-shape8-h200", "--experts", "64", "--concurrency", "16",
         "--plot", str(tmp_path / "b.html"), "--json", str(tmp_path / "b.json")],
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "lossy" in done.output
    data = json.loads((tmp_path / "b.json").read_text())
    assert [one["experts"] for one in data["steps"]] == [None, 64]
    assert "expert budget (lossy)" in (tmp_path / "b.html").read_text()
