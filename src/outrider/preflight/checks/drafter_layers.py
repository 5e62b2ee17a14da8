"""Auxiliary layers: which hidden states of the target a drafter reads, and whether the engine will give it those."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outrider.preflight.checks.drafter_vocabulary import by_last_name
from outrider.preflight.facts.drafter import default_aux_layers
from outrider.preflight.report import Finding, found

if TYPE_CHECKING:
    from collections.abc import Iterable

    from outrider.preflight.checks.case import Case
    from outrider.preflight.facts.drafter import DrafterView


def check_layers(case: Case) -> list[Finding]:
    """Ids present, read by this runner, in range, ascending, and as many as `fc` joins."""
    view, drafter, shape, spec = case.view, case.drafter, case.shape, case.spec
    if view is None or drafter is None or shape is None or spec is None:
        return []
    if spec.method not in {"eagle3", "dflash", "dspark"} or (spec.method == "eagle3" and not view.uses_aux):
        return []
    where = drafter.where("config.json")
    guessed = default_aux_layers(shape.layers)
    ids = view.aux_layers(case.runner)
    stated = view.stated_layers
    if not stated:
        return [
            found("DRAFT004", where, f"no layer ids; the engine takes {guessed} of {shape.layers} layers"),
            *_count(case, view, guessed),
        ]
    if not ids:
        if set(stated) == set(guessed):
            return list(_count(case, view, guessed))
        evidence = f"{list(stated)} stated, the {case.runner.upper()} runner takes {guessed}"
        return [found("DRAFT007", where, evidence)]
    findings: list[Finding] = []
    if outside := [i for i in ids if not 0 <= i <= shape.layers]:
        findings.append(found("DRAFT005", where, f"{outside} of {list(ids)}, the target has {shape.layers} layers"))
    if list(ids) != sorted(ids):
        findings.append(found("DRAFT008", where, f"{list(ids)}, captured as {sorted(set(ids))}"))
    return [*findings, *_count(case, view, ids)]


def _count(case: Case, view: DrafterView, ids: tuple[int, ...]) -> Iterable[Finding]:
    drafter, spec = case.drafter, case.spec
    if drafter is None or spec is None:
        return
    captured = len(set(ids))
    joined = view.fused_inputs if spec.method == "eagle3" else captured
    width = (view.target_hidden or 0) * joined
    fc = by_last_name(drafter.tensors or {}, "fc.weight")
    have = fc.shape[1] if fc is not None and len(fc.shape) == 2 else None
    if captured != joined:
        evidence = f"{captured} layers are captured, the engine's fc joins {joined}"
        yield found("DRAFT006", drafter.where("config.json"), evidence)
    elif have is not None and have != width:
        evidence = f"fc.weight takes {have} inputs, {joined} layers of {view.target_hidden} are {width}"
        yield found("DRAFT006", drafter.label, evidence)
