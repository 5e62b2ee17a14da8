"""Replays an adaptive campaign on cells that were all measured, and compares its decision with the full grid's.

    python benchmarks/adaptive/replay.py STACK CELLS [--share 0.4] [--json PATH]

A decision is on or off at each place. `same` counts places where both agree; `same beyond 3 %` leaves out places whose
measured speedup is within 3 % of parity, where repeats of one cell disagree as well; `regret` is throughput lost
against the better side of every place, by the full grid and by the part.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np

from outrider.campaign.adaptive import Place, next_places
from outrider.decide.doubts import doubts
from outrider.predict.observations import Observation, read_observations
from outrider.predict.session import Session, open_session
from outrider.predict.surface import Wanted, predict
from outrider.predict.validate import Pair, pairs_of
from outrider.stack import Stack, find_stack

_DRAWS = 16


def replay(stack: Stack, cells: list[Observation], share: float, *, random_order: int | None = None) -> dict[str, Any]:
    """Measure by choice (or in a random order, for comparison) and decide everywhere."""
    pairs = {pair.speculative.place: pair for pair in pairs_of(cells)}
    grid = [Place(key, _axes(pair)) for key, pair in pairs.items()]
    budget = math.floor(share * len(grid))
    measured: list[Any] = []
    session = open_session(stack, draws=0)
    while True:
        wanted = {key: [_wanted(pair)] for key, pair in pairs.items() if key not in measured}
        if random_order is None:
            chosen = next_places(grid, measured, doubts(session, wanted) if measured else {}, budget=budget)
        else:
            chosen = _shuffled(list(pairs), random_order)[:budget] if not measured else []
        if not chosen:
            break
        measured += chosen
        known = [cell for key in measured for cell in (pairs[key].plain, pairs[key].speculative)]
        session = open_session(stack, known, draws=_DRAWS)
    return _scored(session, pairs, measured)


def _scored(session: Session, pairs: dict[Any, Pair], measured: list[Any]) -> dict[str, Any]:
    rest = [key for key in pairs if key not in measured]
    predicted = predict(session.fit, [_wanted(pairs[k]) for k in rest], session.draft_bytes)
    gains = {k: pairs[k].speedup for k in measured}
    gains |= {k: p.speedup.mid for k, p in zip(rest, predicted, strict=True) if p.speedup}
    truth = {k: pair.speedup for k, pair in pairs.items()}
    same = {k: (gains[k] > 1) == (truth[k] > 1) for k in pairs}
    beyond = [k for k in pairs if abs(truth[k] - 1) > 0.03]
    lost = [1 - (truth[k] if gains[k] > 1 else 1) / max(truth[k], 1) for k in pairs]
    return {
        "places": len(pairs),
        "measured": len(measured),
        "share": len(measured) / len(pairs),
        "same": sum(same.values()) / len(pairs),
        "same_beyond_3pct": sum(same[k] for k in beyond) / len(beyond),
        "regret": sum(lost) / len(lost),
    }


def _axes(pair: Pair) -> tuple[float, ...]:
    cell = pair.speculative
    return math.log2(cell.batch), math.log2(cell.context + 2048), 2 * math.log2(cell.context_ranks)


def _wanted(pair: Pair) -> Wanted:
    cell = pair.speculative
    return Wanted(cell.variant, cell.k, cell.batch, cell.context, cell.context_ranks, cell.workload)


def _shuffled(keys: list[Any], seed: int) -> list[Any]:
    return [keys[i] for i in np.random.default_rng(seed).permutation(len(keys))]


def main() -> None:
    """Replay, and print both decisions."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stack")
    parser.add_argument("cells", type=Path)
    parser.add_argument("--share", type=float, default=0.4, help="places that may be measured")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    stack = find_stack(given.stack)
    cells = read_observations(given.cells, stack)
    result = {"adaptive": replay(stack, cells, given.share)}
    runs = [replay(stack, cells, given.share, random_order=seed) for seed in range(5)]
    result["random, mean of 5"] = {name: sum(run[name] for run in runs) / len(runs) for name in runs[0]}
    for name, row in result.items():
        sys.stdout.write(
            f"{name}: {row['measured']:.0f} of {row['places']:.0f} places ({row['share']:.0%}), same decision "
            f"{row['same']:.1%}, beyond 3 % of parity {row['same_beyond_3pct']:.1%}, regret {row['regret']:.2%}\n"
        )
    if given.json:
        given.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
