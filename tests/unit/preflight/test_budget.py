"""Expert budgets: permitted, sensible for the target, possible in the pinned engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.preflight import checkpoints as made
from tests.unit.preflight.checkpoints import codes

from outrider.preflight import run_preflight
from outrider.preflight.checks.budget import check_budget
from outrider.preflight.checks.case import Case
from outrider.preflight.engine_tables import engine_table, versions
from outrider.preflight.reading import Checkpoint
from outrider.stack import ExpertBudget, find_stack
from outrider.vllm_ext.expert_budget.interface import REQUIRED

if TYPE_CHECKING:
    from pathlib import Path

    from outrider.preflight.report import PreflightReport
    from outrider.stack import Stack


def budgeted(name: str, budget: dict[str, Any], **changes: Any) -> Stack:
    stack = find_stack(name)
    variant = stack.variants["baseline"].model_copy(update={"expert_budget": ExpertBudget(**budget)})
    return stack.model_copy(update={"variants": {"baseline": variant}, "allow_lossy": True} | changes)


def findings(stack: Stack) -> set[str]:
    report: PreflightReport = run_preflight(stack, "baseline")
    return {code for code in codes(report.findings) if code.startswith("BUDGET")}


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        ({"experts": 64}, set()),
        ({"experts": 8}, set()),
        ({"share": 0.6, "mode": "drop"}, set()),
        ({"experts": 7}, {"BUDGET002"}),
        ({"experts": 384}, {"BUDGET006"}),
    ],
)
def test_budget_is_compared_with_the_targets_experts(budget: dict[str, Any], expected: set[str]) -> None:
    assert findings(budgeted("kimi-k2.5-rtx6000x8", budget)) == expected


def test_budget_needs_an_opt_in() -> None:
    assert findings(budgeted("kimi-k2.5-rtx6000x8", {"experts": 64}, allow_lossy=False)) == {"BUDGET001"}


def test_budget_needs_experts() -> None:
    assert findings(budgeted("smollm2-cpu", {"experts": 64})) == {"BUDGET003"}


def test_budget_needs_an_engine_whose_routers_were_read() -> None:
    stack = find_stack("kimi-k2.5-rtx6000x8")
    engine = stack.engine.model_copy(update={"version": "0.31.0"})
    assert findings(budgeted(stack.name, {"experts": 64}, engine=engine)) == {"BUDGET004"}


def test_a_router_that_changed_is_named(tmp_path: Path) -> None:
    table = engine_table("vllm", "0.33.0")
    assert table is not None
    changed = table.model_copy(update={"router_interface": table.router_interface - {"MoERunner.router"}})
    case = Case(
        budgeted("kimi-k2.5-rtx6000x8", {"experts": 64}), "baseline", changed, Checkpoint("x", None), None, "v2"
    )
    (found,) = check_budget(case)
    assert (found.code, "no MoERunner.router" in found.evidence) == ("BUDGET004", True)


def test_budget_is_refused_with_data_parallel_ranks() -> None:
    stack = find_stack("kimi-k2.5-rtx6000x8")
    parallel = stack.parallel.model_copy(update={"data": 2, "tensor": 4})
    assert findings(budgeted(stack.name, {"experts": 64}, parallel=parallel)) == {"BUDGET005"}


@pytest.mark.parametrize("version", versions())
def test_every_version_with_a_table_has_the_routers(version: str) -> None:
    table = engine_table("vllm", version)
    assert table is not None
    assert table.router_interface == REQUIRED


def test_a_plain_target_has_no_budget_findings(tmp_path: Path) -> None:
    target = made.llama_target().write(tmp_path)
    report = run_preflight(made.stack(made.drafted("ngram")), "drafted", model_dir=target)
    assert not [code for code in codes(report.findings) if code.startswith("BUDGET")]
