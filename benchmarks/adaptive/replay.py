"""Replays an adaptive campaign on cells that were all measured, and compares its decision with the full grid's.

    python benchmarks/adaptive/replay.py STACK CELLS [--share 0.4] [--json PATH]

A place is measured with plain decoding and one speculative variant, once. A decision is on or off at each place.
`same` counts places where both agree; `same beyond 3 %` leaves out places whose measured speedup is within 3 % of
parity, where repeats of one cell disagree as well; `regret` is throughput lost against the better side of every place.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np

from outrider.decide.belief import Belief, Seen
from outrider.decide.information import Action, best_actions
from outrider.predict.observations import Observation, read_observations
from outrider.predict.session import open_session
from outrider.predict.surface import Wanted
from outrider.predict.validate import Pair, pairs_of
from outrider.stack import Stack, find_stack


def replay(stack: Stack, cells: list[Observation], share: float, *, random_order: int | None = None) -> dict[str, Any]:
    """Measure by choice (or in a random order, for comparison) and decide everywhere."""
    pairs = [*{pair.speculative.place: pair for pair in pairs_of(cells)}.values()]
    session = open_session(stack, draws=0)
    sites = [_site(cell) for pair in pairs for cell in (pair.plain, pair.speculative)]
    prior = Belief.prior(session.fit.machine, sites, session.draft_bytes, session.acceptance)
    budget = math.floor(share * len(pairs))
    belief, measured = prior, [*_shuffled(len(pairs), random_order)][:budget]
    while random_order is None and len(measured) < budget:
        rest: dict[int, Action] = {i: ((2 * i, i), (2 * i + 1, i)) for i in range(len(pairs)) if i not in measured}
        chosen = best_actions(belief, [*rest.values()], most_cells=2, least=0.0)
        measured += [int(str(action[0][1])) for action in chosen]
        belief = prior.given(_seen(pairs, measured))
    return _scored(prior.given(_seen(pairs, measured)), pairs, measured)


def _seen(pairs: list[Pair], measured: list[int]) -> list[Seen]:
    return [
        Seen(2 * i + own, i, 1 / cell.rate, cell.tokens_per_step if cell.k else None)
        for i in measured
        for own, cell in enumerate((pairs[i].plain, pairs[i].speculative))
    ]


def _scored(belief: Belief, pairs: list[Pair], measured: list[int]) -> dict[str, Any]:
    places = range(len(pairs))
    means, _ = belief.gains([2 * i for i in places], [2 * i + 1 for i in places])
    truth = np.array([pair.speedup for pair in pairs])
    gains = np.where([i in measured for i in places], truth, np.exp(means))
    same = (gains > 1) == (truth > 1)
    return {
        "places": len(pairs),
        "measured": len(measured),
        "share": len(measured) / len(pairs),
        "same": float(same.mean()),
        "same_beyond_3pct": float(same[np.abs(truth - 1) > 0.03].mean()),
        "regret": float(np.mean(1 - np.where(gains > 1, truth, 1) / np.maximum(truth, 1))),
    }


def _site(cell: Observation) -> Wanted:
    return Wanted(cell.variant, cell.k, cell.batch, cell.context, cell.context_ranks, cell.workload)


def _shuffled(count: int, seed: int | None) -> list[int]:
    return [] if seed is None else np.random.default_rng(seed).permutation(count).tolist()


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
    result = {f"adaptive, {share:.0%}": replay(stack, cells, share) for share in (0.25, 0.33, given.share)}
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
