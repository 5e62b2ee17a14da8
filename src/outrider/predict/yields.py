"""Tokens a step of each variant, pooled over cells: what one window counted is a noisy view of it."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from outrider.predict.acceptance import Acceptance, check_positions
from outrider.predict.errors import PredictError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from outrider.predict.observations import Observation

Key = tuple[str, str, int]
# Weight of a cell's own count against the pool of its variant, workload and k, on the log scale. The counters of a
# window and the throughput of another one, as in most published tables, agree by about half.
RELIABILITY = 0.5


@dataclass(frozen=True, slots=True)
class Yields:
    """What steps of each variant yield.

    Attributes:
        pooled: tokens a step by (variant, workload, k); geometric means.
        positions: acceptance by position / steps, by (variant, workload): steps that drafted nothing count.
        drafted: share of steps that draft, by (variant, workload).
    """

    pooled: Mapping[Key, float]
    positions: Mapping[tuple[str, str], tuple[float, ...]]
    drafted: Mapping[tuple[str, str], float] = field(default_factory=dict)

    def share(self, variant: str, workload: str = "") -> float:
        """Share of steps that draft under a workload (the mean of all, if that one was not measured)."""
        own = [share for key, share in self.drafted.items() if key[0] == variant]
        return self.drafted.get((variant, workload), math.fsum(own) / len(own) if own else 1.0)

    def of_cell(self, cell: Observation) -> float:
        """Of a measured cell: between its own count and its pool's."""
        if not cell.k:
            return 1.0
        pool = self.pooled[cell.variant, cell.workload, cell.k]
        if cell.tokens_per_step is None:
            return pool
        return float(pool * (cell.tokens_per_step / pool) ** RELIABILITY)

    def acceptance(self, variant: str, workload: str = "") -> Acceptance | None:
        """Of a variant under a workload (any, if that one was not measured), for every k."""
        keys = [key for key in self.pooled if key[0] == variant]
        own = [key for key in keys if key[1] == workload] or keys
        if not own:
            return None
        if positions := self.positions.get((variant, own[0][1])):
            return Acceptance.of_positions(positions, "measured by position")
        lengths = {key[2]: self.pooled[key] for key in own}
        k = max(lengths)
        return Acceptance.of_length(min(lengths[k], k + 1.0), k, f"measured at k={k}")


def pooled_yields(cells: Sequence[Observation], fallback: Sequence[Observation] = ()) -> Yields:
    """Pool cells; groups that a resample lacks are taken from `fallback`.

    Raises:
        PredictError: a speculative group in which no cell counted its tokens a step.
    """
    pooled = _means(fallback) | _means(cells)
    for cell in fallback or cells:
        if cell.k and (cell.variant, cell.workload, cell.k) not in pooled:
            raise PredictError(
                f"no cell of {cell.variant} at k={cell.k} says how many tokens a step it got",
                evidence=cell.where,
                next_step="measure with the engine's counters on, or give --acceptance",
            )
    return Yields(pooled, _positions(cells) or _positions(fallback), _drafted(fallback) | _drafted(cells))


def _means(cells: Sequence[Observation]) -> dict[Key, float]:
    logs: defaultdict[Key, list[float]] = defaultdict(list)
    for cell in cells:
        if cell.k and cell.tokens_per_step:
            logs[cell.variant, cell.workload, cell.k].append(math.log(cell.tokens_per_step))
    return {key: math.exp(math.fsum(values) / len(values)) for key, values in logs.items()}


def _positions(cells: Sequence[Observation]) -> dict[tuple[str, str], tuple[float, ...]]:
    grouped: defaultdict[tuple[str, str], list[tuple[float, ...]]] = defaultdict(list)
    for cell in cells:
        if cell.positions:
            # The engine counts per drafting event; a yield is per step.
            grouped[cell.variant, cell.workload].append(tuple(p * cell.drafted for p in cell.positions))
    found = {}
    for key, rows in grouped.items():
        width = max(map(len, rows))
        means = [math.fsum(r[i] for r in rows if i < len(r)) / sum(i < len(r) for r in rows) for i in range(width)]
        check_positions(means, f"{key[0]}, {key[1]}")
        found[key] = tuple(means)
    return found


def _drafted(cells: Sequence[Observation]) -> dict[tuple[str, str], float]:
    grouped: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for cell in cells:
        if cell.k:
            grouped[cell.variant, cell.workload].append(cell.drafted)
    return {key: math.fsum(shares) / len(shares) for key, shares in grouped.items()}
