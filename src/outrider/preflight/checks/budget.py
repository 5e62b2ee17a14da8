"""The expert budget: allowed, sensible for the target, and possible in the pinned engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outrider.preflight.report import Finding, found
from outrider.vllm_ext.expert_budget.interface import REQUIRED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from outrider.preflight.checks.case import Case
    from outrider.stack import ExpertBudget


def check_budget(case: Case) -> list[Finding]:
    """All findings about a variant's expert budget; none for a variant without."""
    budget = case.variant.expert_budget
    return [] if budget is None else [*_permitted(case), *_fits_target(case, budget), *_fits_engine(case)]


def _permitted(case: Case) -> Iterable[Finding]:
    if not case.stack.allow_lossy:
        yield found("BUDGET001", case.place("expert_budget"), "allow_lossy: false")


def _fits_target(case: Case, budget: ExpertBudget) -> Iterable[Finding]:
    if case.shape is None:
        return
    experts = case.shape.experts
    if experts is None:
        yield found("BUDGET003", case.place("expert_budget"), f"{case.target.label} has no routed experts")
        return
    if budget.experts is None:
        return
    where = case.place("expert_budget.experts")
    if budget.experts < experts.per_token:
        yield found("BUDGET002", where, f"{budget.experts}, top_k is {experts.per_token}")
    elif budget.experts >= experts.count:
        yield found("BUDGET006", where, f"{budget.experts} of {experts.count} experts")


def _fits_engine(case: Case) -> Iterable[Finding]:
    table, engine = case.table, case.stack.engine
    where = case.place("expert_budget")
    if table is None or (lacking := sorted(REQUIRED - table.router_interface)):
        evidence = f"{engine.name} {engine.version}: "
        yield found("BUDGET004", where, evidence + ("no table" if table is None else f"no {', '.join(lacking)}"))
    if case.stack.parallel.data > 1:
        yield found("BUDGET005", where, f"parallel.data {case.stack.parallel.data}")
