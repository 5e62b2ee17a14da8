"""Replays an adaptive campaign on a finished run of the embedded default, and compares the choices.

    python benchmarks/adaptive/embedded.py RUN_DIRECTORY [--share 0.4] [--stack smollm2-cpu]

The run must have measured its whole grid. Choices of the whole grid are the report's own: the fastest variant whose
paired interval lies above 1, else baseline. The part chooses by the same rule where it measured, and elsewhere what the
model expects to be fastest, which is what the value of a measurement is reckoned against. `regret` holds either
against the fastest measured variant.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outrider.campaign.compare import compare
from outrider.campaign.plan import CampaignPlan
from outrider.campaign.store import RunStore
from outrider.decide import choose
from outrider.decide.adaptive import chooser
from outrider.decide.decision import Question, decide
from outrider.decide.slo import Slo
from outrider.predict.observations import observations_of
from outrider.predict.session import open_session
from outrider.stack import find_stack

if TYPE_CHECKING:
    from outrider.campaign.cell import Cell
    from outrider.decide.places import PlaceChoice


def replay(directory: Path, stack_name: str, share: float) -> dict[str, Any]:
    """Choose cells one after the other, decide every place, and compare."""
    stack, store = find_stack(stack_name), RunStore(directory)
    plan = CampaignPlan.model_validate_json((directory / "plan.json").read_text(encoding="utf-8"))
    whole = {cell.key: cell for cell in store.cells()}
    pick = chooser(stack, plan, share=share)
    part: list[Cell] = []
    while keys := [key for key in pick(part) if key in whole]:
        part += [whole[key] for key in keys]
    points = compare(list(whole.values()), store.requests())
    truth = {(c.workload, c.concurrency): c.variant for c in choose(points)}
    speeds = {(p.workload, p.concurrency, p.variant): 1 / p.tpot_s.mid for p in points if p.tpot_s}
    chosen = _chosen(stack_name, plan, part) | {
        place: variant or "baseline"
        for place, variant in truth.items()
        if any((cell.workload, cell.concurrency) == place for cell in part)
    }
    lost = {}
    for place in truth:
        best = max(value for (w, c, _), value in speeds.items() if (w, c) == place)
        lost[place] = 1 - speeds[*place, chosen[place]] / best
    return {
        "cells": len(part),
        "of": len(whole),
        "same": sum(chosen[place] == variant for place, variant in truth.items()),
        "places": len(truth),
        "regret": sum(lost.values()) / len(lost),
        "regret_whole": sum(
            1 - speeds[*place, variant or "baseline"] / max(v for (w, c, _), v in speeds.items() if (w, c) == place)
            for place, variant in truth.items()
        ) / len(truth),
        "choices": {f"{w} {c}": (truth[w, c], chosen[w, c]) for w, c in truth},
    }  # fmt: skip


def _chosen(stack_name: str, plan: CampaignPlan, part: list[Cell]) -> dict[tuple[str, int], str]:
    stack = find_stack(stack_name)
    cells = observations_of([(cell.cell_id, cell.to_json()) for cell in part], stack)
    session = open_session(stack, cells)
    found = {}
    for workload in plan.workloads:
        contexts = [c.context for c in cells if c.workload == workload]
        question = Question(Slo(), (sum(contexts) / len(contexts),), plan.concurrency, workload, (3,))
        for choice in decide(session, cells, question, None).choices:
            found[workload, choice.batch] = _expected(choice)
    return found


def _expected(choice: PlaceChoice) -> str:
    """The variant that is expected to be fastest; baseline where none is expected to beat it."""
    best = max(choice.options, key=lambda o: o.speedup.mid if o.speedup else 1.0)
    return best.variant


def main() -> None:
    """Replay, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--stack", default="smollm2-cpu")
    parser.add_argument("--share", type=float, default=0.4)
    given = parser.parse_args()
    found = replay(given.run, given.stack, given.share)
    sys.stdout.write(
        f"{found['cells']} of {found['of']} cells, same choice at {found['same']} of {found['places']} places, "
        f"regret {found['regret']:.1%} (whole grid {found['regret_whole']:.1%})\n"
    )
    for place, (whole, part) in found["choices"].items():
        sys.stdout.write(f"  {place}: {whole} / {part}\n")


if __name__ == "__main__":
    main()
