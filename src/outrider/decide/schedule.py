"""The k schedule in the engine's own form, with inertia around K = 0.

The engine looks k up by the number of requests scheduled in a step, every step, so a band edge in the middle of the
batch sizes that occur makes it switch all the time; crossing K = 0 has collapsed engines (vllm issues 32374, 49548).
The schedule is therefore the path over batch sizes with the least loss, where every change of k costs something and
changes to or from 0 cost more (Viterbi): a band is opened only if what it gains over its width pays for its edges.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from outrider.decide.errors import DecideError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from outrider.campaign.stats import Interval
    from outrider.decide.dynamic_cost import DynamicCost

Bands = tuple[tuple[int, int, int], ...]
# Loss, in octaves of batch x share of speed, that one change of k must save; and what crossing 0 adds.
_CHANGE, _CROSSING = 0.05, 0.10


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule and what it is expected to give.

    Attributes:
        bands: `[first batch, last batch, k]`, inclusive, from 1.
        gain: mean over batch sizes (in octaves) of its speed over plain decoding, the dynamic path's cost included.
        static_k: the best single k.
        static_gain: its mean speed over plain decoding, without a schedule.
        best_gain: mean of the best choice at each batch, without switching costs.
    """

    bands: Bands
    gain: float
    static_k: int
    static_gain: float
    best_gain: float

    @property
    def largest_k(self) -> int:
        """Upper bound of all bands."""
        return max(band[2] for band in self.bands)

    @property
    def worthwhile(self) -> bool:
        """Whether it changes k at all and gains at least 1 % over the best single k."""
        return len(self.bands) > 1 and self.gain > 1.01 * self.static_gain

    def k_at(self, batch: int) -> int:
        """The k in force at a batch size."""
        return next((k for first, last, k in self.bands if first <= batch <= last), self.bands[-1][2])


def certain_gain(speedup: Interval) -> float:
    """A speedup as far as it is beyond doubt: its middle, or 1 where the interval holds 1."""
    return speedup.mid if speedup.excludes(1.0) else 1.0


def build_schedule(
    speedups: Mapping[int, Mapping[int, Interval]], cost: DynamicCost, *, max_batch: int, inertia: float = 1.0
) -> Schedule:
    """The path of least loss.

    Args:
        speedups: batch size to k (above 0) to speedup over plain decoding; the same k at every batch.
        cost: of the dynamic path.
        max_batch: last batch size that the engine schedules.
        inertia: factor on the cost of changes; 0 follows every noise.

    Raises:
        DecideError: nothing to choose from, or a k that is missing at some batch.
    """
    batches = sorted(b for b in speedups if b <= max_batch)
    if not batches:
        raise DecideError("a schedule needs speedups at some batch size", next_step="predict or measure first")
    ks = sorted(speedups[batches[0]])
    if any(sorted(speedups[b]) != ks for b in batches) or not ks:
        raise DecideError("a schedule needs the same k at every batch size", evidence=f"k {ks} at batch {batches[0]}")
    fixed = {k: [certain_gain(speedups[b][k]) for b in batches] for k in ks}
    utility = {k: [gain / (1 + cost.speculating) for gain in gains] for k, gains in fixed.items()}
    utility[0] = [1 / (1 + cost.off)] * len(batches)
    widths = _octaves(batches, max_batch)
    path = _least_loss(utility, widths, inertia)
    gain = sum(utility[k][i] * w for i, (k, w) in enumerate(zip(path, widths, strict=True))) / sum(widths)

    def mean(values: Sequence[float]) -> float:
        return sum(v * w for v, w in zip(values, widths, strict=True)) / sum(widths)

    static = {0: 1.0} | {k: mean(gains) for k, gains in fixed.items()}
    static_k = max(static, key=lambda k: (static[k], -k))
    best = mean([max(1.0, *(fixed[k][i] for k in ks)) for i in range(len(batches))])
    return Schedule(_joined(batches, path, max_batch), gain, static_k, static[static_k], best)


def _least_loss(utility: Mapping[int, Sequence[float]], widths: Sequence[float], inertia: float) -> list[int]:
    ks = sorted(utility)
    best = [max(utility[k][i] for k in ks) for i in range(len(widths))]
    loss = {k: (best[0] - utility[k][0]) * widths[0] for k in ks}
    came: list[dict[int, int]] = []
    for i in range(1, len(widths)):
        step: dict[int, int] = {}
        following: dict[int, float] = {}
        for k in ks:
            total = {j: loss[j] + inertia * _change(j, k) for j in ks}
            step[k] = min(ks, key=lambda j: (total[j], j != k))
            following[k] = total[step[k]] + (best[i] - utility[k][i]) * widths[i]
        came.append(step)
        loss = following
    path = [min(ks, key=lambda k: (loss[k], k))]
    for step in reversed(came):
        path.append(step[path[-1]])
    return path[::-1]


def _change(before: int, after: int) -> float:
    if before == after:
        return 0.0
    return _CHANGE + (_CROSSING if 0 in {before, after} else 0.0)


def _octaves(batches: Sequence[int], max_batch: int) -> list[float]:
    """How much of the batch axis each size stands for: from itself to the next one, in doublings."""
    ends = [*batches[1:], max(max_batch + 1, batches[-1] + 1)]
    return [math.log2(end / start) for start, end in zip(batches, ends, strict=True)]


def _joined(batches: Sequence[int], path: Sequence[int], max_batch: int) -> Bands:
    bands: list[tuple[int, int, int]] = []
    for i, k in enumerate(path):
        first = 1 if i == 0 else batches[i]
        last = batches[i + 1] - 1 if i + 1 < len(batches) else max_batch
        if bands and bands[-1][2] == k:
            first = bands.pop()[0]
        bands.append((first, last, k))
    return tuple(bands)
