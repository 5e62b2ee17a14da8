"""Step time against an expert budget: bytes fall from the union of experts to B, and rows crowd on what is left."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from typer.testing import CliRunner

from outrider.cli import app
from outrider.predict.budget import BudgetStep, budget_steps
from outrider.predict.errors import PredictError
from outrider.predict.experts import REVISIT, further_blocks
from outrider.predict.observations import read_observations
from outrider.predict.session import open_session
from outrider.stack import find_stack

if TYPE_CHECKING:
    from outrider.predict.fit import Fit

EVIDENCE = Path(__file__).parents[3] / "docs/evidence/h200-kimi-budget"


@pytest.fixture(scope="module")
def fit() -> Fit:
    return open_session(find_stack("kimi-k2.5-rtx6000x8"), []).fit


def steps(fit: Fit, *budgets: int, batch: int = 16) -> list[BudgetStep]:
    return budget_steps(fit, budgets, batches=[batch], k=3, context=1024.0)


def test_time_falls_with_the_bytes_of_the_experts_left_out_less_those_of_further_blocks(fit: Fit) -> None:
    none, *bounded = steps(fit, 128, 96, 64)
    machine, factors = fit.machine, fit.factors
    for one in bounded:
        assert one.experts is not None
        crowded, before = further_blocks(np.array(64.0), np.array([one.experts, none.union]), 384, 8)
        experts_saved = none.union - one.experts - REVISIT * (crowded - before)
        seconds = experts_saved * machine.expert_bytes * machine.moe_layers
        seconds /= machine.bandwidth * factors.expert_stream
        assert none.step_s.mid - one.step_s.mid == pytest.approx(seconds)
    times = [one.step_s.mid for one in (none, *bounded)]
    assert times == sorted(times, reverse=True)


@pytest.mark.parametrize(("tokens", "read"), [(4, 48), (32, 188), (32, 48), (128, 96), (128, 358), (512, 48), (700, 8)])
def test_further_blocks_are_those_of_tokens_dealt_out_by_hand(tokens: int, read: int) -> None:
    generator = np.random.default_rng(tokens + read)
    block = next((size for size in (8, 16, 32, 48, 64) if tokens * 8 / 384 / size < 0.9), 64)
    dealt = []
    for _ in range(60):
        chosen = np.argsort(generator.random((tokens, read)), axis=1)[:, :8]
        rows = np.bincount(chosen.ravel(), minlength=read)
        dealt.append(np.maximum(np.ceil(rows / block) - 1, 0).sum())
    found = float(further_blocks(np.array(float(tokens)), np.array(float(read)), 384, 8))
    assert found == pytest.approx(np.mean(dealt), abs=max(0.5, 5 * np.std(dealt) / np.sqrt(60)))


@pytest.mark.parametrize("users", [8, 32, 128])
def test_a_measured_budget_is_predicted_from_cells_without_one(users: int, tmp_path: Path) -> None:
    cells = [json.loads(line) for line in (EVIDENCE / "cells.jsonl").read_text().splitlines()]
    own = {cell["variant"]: cell for cell in cells if cell["concurrency"] == users}
    free = tmp_path / "cells.jsonl"
    free.write_text("".join(json.dumps(c) + "\n" for c in cells if c["variant"] in {"baseline", "static3"}))
    stack = find_stack(str(EVIDENCE / "kimi-shape8-h200.yaml"))  # as it was served
    session = open_session(stack, read_observations(free, stack))
    drafter = session.draft_bytes("static3")
    found = budget_steps(session.fit, [192, 96, 48], batches=[users], k=3, context=128.0, draft_bytes=drafter)
    for one in found[1:]:
        measured = step_s(own[f"static3-b{one.experts}"]) / step_s(own["static3"])
        assert one.ratio.mid == pytest.approx(measured, rel=0.1), one.experts


def step_s(cell: dict[str, Any]) -> float:
    return float(cell["tpot_s"]["mean"]) * float(cell["tokens_per_step"])


def test_a_binding_budget_never_slows_a_step(fit: Fit) -> None:
    """Not even just below the union, where few experts are left out and rows are many."""
    for batch in (16, 64, 128, 256):
        union = steps(fit, 384, batch=batch)[0].union
        found = steps(fit, *{int(union), int(union) - 1, int(0.9 * union)}, batch=batch)
        assert all(one.ratio.high <= 1.0 + 1e-9 for one in found), batch


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
