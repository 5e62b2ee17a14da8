"""Replays adaptive campaigns on finished runs of the embedded default: do they decide as the whole grid does?

    python benchmarks/adaptive/embedded.py RUN_DIRECTORY... [--share 0.4] [--replicas 100] [--stack smollm2-cpu]

Each run must have measured its whole grid. The whole grid's decision is the report's own: the fastest variant whose
paired interval lies above 1, else baseline. The part sees only the cells that it chose.

`same` counts a place only if both name the same variant. `same or tied` also counts it where the whole grid itself
cannot tell its choice from the part's: the 95 % interval of their speed ratio, on common prompts, holds 1. `regret` is
the speed that the part's choices lose against the whole grid's fastest variants; the whole grid's own choices lose
some as well, because baseline wins ties.

A replica draws the prompts of every place and repeat again, the same for all variants, and moves every cell by
`--jitter`: another campaign on the same machine, as far as one run can tell. With several runs, the part of one is
also held against the whole grid of another, beside what the whole grids themselves agree on.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from outrider.campaign.compare import compare, ratio_of
from outrider.campaign.plan import CampaignPlan
from outrider.campaign.store import RunStore
from outrider.decide import choose
from outrider.decide.adaptive import AdaptiveCampaign
from outrider.stack import Stack, find_stack

if TYPE_CHECKING:
    from outrider.campaign.cell import Cell

PlaceKey = tuple[str, int]


@dataclass(frozen=True)
class Grid:
    """A whole grid: cells, requests, and what they decide."""

    plan: CampaignPlan
    cells: tuple[Cell, ...]
    requests: pl.DataFrame
    truth: dict[PlaceKey, str]
    tied: dict[PlaceKey, set[str]]
    speeds: dict[tuple[str, int, str], float]

    @classmethod
    def of(cls, plan: CampaignPlan, cells: tuple[Cell, ...], requests: pl.DataFrame) -> Grid:
        """Decide, and say where the decision is a tie."""
        points = {(p.workload, p.concurrency, p.variant): p for p in compare(cells, requests)}
        truth = {(c.workload, c.concurrency): c.variant or "baseline" for c in choose(list(points.values()))}
        tied = {}
        for place, winner in truth.items():
            others = {v: ratio_of(requests, points[*place, v], points[*place, winner]) for v in plan.variants}
            tied[place] = {winner} | {v for v, ratio in others.items() if ratio and not ratio.excludes(1.0)}
        speeds = {key: 1 / p.tpot_s.mid for key, p in points.items() if p.tpot_s}
        return cls(plan, cells, requests, truth, tied, speeds)

    def replica(self, seed: int, jitter: float) -> Grid:
        """The same grid with other prompts and a little other speed in every cell."""
        rng = np.random.default_rng(seed)
        frames, cells = [], []
        measured = self.requests.filter(pl.col("phase") == "measured")
        own = dict(measured.group_by("workload", "concurrency", "repeat", "variant"))
        draws: dict[tuple[Any, ...], list[str]] = {}
        for cell in self.cells:
            block = (cell.workload, cell.concurrency, cell.repeat)
            rows = own[*block, cell.variant]
            if block not in draws:
                prompts = sorted(set(rows["prompt_id"]))
                draws[block] = [prompts[i] for i in rng.integers(0, len(prompts), len(prompts))]
            drawn = pl.DataFrame({"prompt_id": draws[block], "copy": [str(i) for i in range(len(draws[block]))]})
            moved = drawn.join(rows, on="prompt_id", how="inner").with_columns(
                pl.concat_str("prompt_id", pl.lit("#"), "copy").alias("prompt_id"),
                pl.col("tpot_s") * float(np.exp(rng.normal(0, jitter))),
            )
            frames.append(moved.select(self.requests.columns))
            cells.append(_moved(cell, rows, moved))
        return Grid.of(self.plan, tuple(cells), pl.concat(frames))


def _moved(cell: Cell, before: pl.DataFrame, after: pl.DataFrame) -> Cell:
    """A cell with the mean TPOT of its new requests; its tokens a step move as its tokens a chunk do."""
    if cell.load is None:
        return cell
    latency = cell.load.tpot_s.model_copy(update={"mean": after["tpot_s"].mean()})
    tokens = [frame["output_tokens"].sum() / frame["chunks"].sum() for frame in (before, after)]
    steps = max(1.0, cell.tokens_per_step * tokens[1] / tokens[0]) if cell.k and cell.tokens_per_step else None
    load = cell.load.model_copy(update={"tpot_s": latency})
    return cell.model_copy(update={"load": load, "tokens_per_step": steps or cell.tokens_per_step})


def adaptive(stack: Stack, grid: Grid, share: float) -> tuple[list[Cell], dict[PlaceKey, str]]:
    """Choose cells one after the other, and decide every place."""
    whole = {cell.key: cell for cell in grid.cells}
    campaign = AdaptiveCampaign(stack, grid.plan, share=share)
    part: list[Cell] = []
    while keys := [key for key in campaign.choose(part) if key in whole]:
        part += [whole[key] for key in keys]
    return part, {(v.workload, v.concurrency): v.variant for v in campaign.verdicts(part)}


def score(chosen: dict[PlaceKey, str], grid: Grid) -> dict[str, float]:
    """Choices against a whole grid's."""
    best = {place: max(grid.speeds[*place, v] for v in grid.plan.variants) for place in grid.truth}
    lost = {name: [1 - grid.speeds[*p, v] / best[p] for p, v in by.items()] for name, by in
            (("regret", chosen), ("regret_whole", grid.truth))}  # fmt: skip
    return {
        "places": len(grid.truth),
        "same": sum(chosen[place] == variant for place, variant in grid.truth.items()),
        "same_or_tied": sum(chosen[place] in grid.tied[place] for place in grid.truth),
        **{name: sum(values) / len(values) for name, values in lost.items()},
    }


def _line(name: str, rows: list[dict[str, float]]) -> str:
    def share(field: str) -> str:
        hits, places = sum(r[field] for r in rows), sum(r["places"] for r in rows)
        whole = sum(r[field] == r["places"] for r in rows)
        return f"{hits / places:.1%} of places ({whole} of {len(rows)} campaigns everywhere)"

    cells = f"{np.mean([r['cells'] for r in rows]):.1f} cells, " if "cells" in rows[0] else ""
    regret, whole = (float(np.mean([r[f] for r in rows])) for f in ("regret", "regret_whole"))
    return (
        f"{name}: {cells}same {share('same')}, same or tied {share('same_or_tied')}, "
        f"regret {regret:.1%} (whole grid's own {whole:.1%})\n"
    )


def main() -> None:
    """Replay, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--stack", default="smollm2-cpu")
    parser.add_argument("--share", type=float, default=0.4)
    parser.add_argument("--replicas", type=int, default=100, help="of each run")
    parser.add_argument("--jitter", type=float, default=0.03, help="relative noise of a replica's cells")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    stack = find_stack(given.stack)
    grids: dict[str, Grid] = {}
    for directory in given.runs:
        plan = CampaignPlan.model_validate_json((directory / "plan.json").read_text(encoding="utf-8"))
        store = RunStore(directory)
        grids[directory.name] = Grid.of(plan, tuple(store.cells()), store.requests())
    found: dict[str, list[dict[str, float]]] = {}
    parts = {}
    for name, grid in grids.items():
        part, parts[name] = adaptive(stack, grid, given.share)
        found[f"{name}, as recorded"] = [score(parts[name], grid) | {"cells": len(part)}]
        for place, variant in grid.truth.items():
            ties = ", ".join(sorted(grid.tied[place] - {variant})) or "-"
            sys.stdout.write(
                f"{name} {place[0]} {place[1]}: whole {variant} (tied: {ties}), part {parts[name][place]}\n"
            )
        replicas = [grid.replica(seed, given.jitter) for seed in range(given.replicas)]
        if replicas:
            runs = [adaptive(stack, replica, given.share) for replica in replicas]
            found[f"{name}, {given.replicas} replicas"] = [
                score(chosen, replica) | {"cells": len(part)}
                for (part, chosen), replica in zip(runs, replicas, strict=True)
            ]
            found[f"whole replicas against whole {name}"] = [score(replica.truth, grid) for replica in replicas]
    for one, other in permutations(grids, 2):
        found[f"part of {one} against whole {other}"] = [score(parts[one], grids[other])]
        found[f"whole {one} against whole {other}"] = [score(grids[one].truth, grids[other])]
    for name, rows in found.items():
        sys.stdout.write(_line(name, rows))
    if given.json:
        given.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
