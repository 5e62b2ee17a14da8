"""Intervals for what a campaign measures: speedups, throughput ratios, drift, and when to stop.

The unit of resampling is the prompt: requests differ far more between prompts than two runs of one prompt do,
so variants are compared on the same prompts, and the bootstrap draws prompts. What prompts cannot show is a machine
whose speed changes between repeats; that part is estimated from the repeats and added. Everything is deterministic
by seed and independent of the order of its input.

Methods and sources:

- Means and ratios of means: percentile bootstrap whose levels are widened for small samples ("expanded
  percentile", T. Hesterberg, *What Teachers Should Know About the Bootstrap*, Am. Stat. 69 (2015) 371-386).
  Below `SMALL` values no bootstrap can reach its level (it never leaves the range of the data), so Student's t
  with the delta method on the log scale is used.
- Repeats: the variance between them beyond what prompts explain, by the method of moments (R. DerSimonian,
  N. Laird, Control. Clin. Trials 7 (1986) 177-188) on the log of the ratio. Two repeats estimate it badly, but on
  average rightly; none of it is seen with one.
- Medians and percentiles: the same bootstrap. A percentile needs about ten values beyond it: p99 of 100
  requests is a guess, and its interval too narrow.
- Differences of paired shares: A. Agresti, Y. Min, Stat. Med. 24 (2005) 729-740, half a count added to each
  cell, so that full agreement on 100 items does not read as certainty.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeVar

import numpy as np
from scipy.special import ndtri

from outrider.campaign.resampling import (
    expanded_percentiles,
    finite_array,
    resampled_rows,
    statistic_of,
    student_t,
)
from outrider.errors import CampaignError

if TYPE_CHECKING:
    from collections.abc import Callable

    from outrider.campaign.resampling import Floats

Key = TypeVar("Key", bound=Hashable)
Verdict = Literal["equivalent", "lower", "higher", "unclear"]

SMALL = 6


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure with its confidence interval.

    Attributes:
        low: lower end; for a ratio 0 where one single value gives no interval.
        mid: the figure itself, computed from the sample, not from the resamples.
        high: upper end; infinite where one single value gives no interval.
        n: values (prompts, repeats, items) that it rests on.
        dropped: keys that only one side of a comparison had, and which were left out.
        confidence: probability with which such intervals cover the truth.
    """

    low: float
    mid: float
    high: float
    n: int
    dropped: int = 0
    confidence: float = 0.95

    def excludes(self, value: float) -> bool:
        """Whether `value` lies outside: `speedup.excludes(1.0)` is "the difference is real"."""
        return not self.low <= value <= self.high

    @property
    def relative_half_width(self) -> float:
        """Half the width as a share of the figure; infinite for a figure of 0 with any width."""
        half = (self.high - self.low) / 2
        if half == 0:
            return 0.0
        return half / abs(self.mid) if self.mid else math.inf

    def as_dict(self) -> dict[str, float | int | None]:
        """JSON form: `low`, `mid`, `high`, `n`, `dropped`, `confidence`; an infinite end is null."""
        ends = {"low": self.low, "mid": self.mid, "high": self.high}
        finite = {name: value if math.isfinite(value) else None for name, value in ends.items()}
        return {**finite, "n": self.n, "dropped": self.dropped, "confidence": self.confidence}


def paired_speedup(
    base: Mapping[Key, float],
    other: Mapping[Key, float],
    *,
    seed: int = 0,
    confidence: float = 0.95,
    repeat_of: Callable[[Key], Hashable] | None = None,
) -> Interval:
    """Speedup of `other` over `base` on the prompts that both answered.

    Args:
        base: TPOT in seconds by prompt key, of the variant compared with (usually `baseline`).
        other: the same for the variant in question.
        seed: of the bootstrap.
        confidence: of the interval.
        repeat_of: which repeat a key belongs to; the interval then holds what repeats differ by as well.

    Returns:
        mean TPOT of `base` / mean TPOT of `other`; above 1 means that `other` is faster.

    Raises:
        CampaignError: no common prompt, or a TPOT that is not a positive finite number.
    """
    one, two, dropped = _aligned(base, other)
    _require_positive(one, two)
    low, mid, high = _ratio_of_means(one, two, seed, confidence)
    if repeat_of is not None:
        keys = sorted(base.keys() & other.keys(), key=str)
        low, high = _widened(low, mid, high, _repeats_variance(one, two, [repeat_of(key) for key in keys]), confidence)
    return Interval(low, mid, high, one.size, dropped, confidence)


def throughput_ratio(base: Sequence[float], other: Sequence[float], *, confidence: float = 0.95) -> Interval:
    """Throughput of `other` over `base`, each measured in a few independent repeats.

    Welch's t on the log scale (delta method), because a bootstrap of three values means nothing. `n` is the
    smaller number of repeats; with one repeat on either side the interval is (0, inf).

    Raises:
        CampaignError: a side is empty or holds a value that is not a positive finite number.
    """
    one, two = finite_array(base), finite_array(other)
    _require_positive(one, two)
    mid = float(two.mean() / one.mean())
    n = min(one.size, two.size)
    if n < 2:
        return Interval(0.0, mid, math.inf, n, confidence=confidence)
    parts = [float(side.var(ddof=1) / side.size / side.mean() ** 2) for side in (one, two)]
    variance = sum(parts)
    if variance == 0:
        return Interval(mid, mid, mid, n, confidence=confidence)
    freedom = variance**2 / sum(p**2 / (side.size - 1) for p, side in zip(parts, (one, two), strict=True))
    reach = student_t(freedom, confidence) * math.sqrt(variance)
    return Interval(mid * math.exp(-reach), mid, mid * math.exp(reach), n, confidence=confidence)


def bootstrap_interval(
    values: Sequence[float] | Floats, statistic: str = "mean", *, seed: int = 0, confidence: float = 0.95
) -> Interval:
    """Bootstrap interval of one sample.

    Args:
        values: at least one finite number, any unit.
        statistic: `mean`, `median`, or `p` and a number such as `p90`, `p99.9`.
        seed: of the bootstrap.
        confidence: of the interval.

    Raises:
        CampaignError: no values, a value that is not finite, or an unknown statistic.
    """
    sample = finite_array(values)
    figure = statistic_of(statistic)
    mid = float(figure(sample[None, :])[0])
    if sample.size == 1:
        return Interval(-math.inf, mid, math.inf, 1, confidence=confidence)
    if statistic == "mean" and sample.size < SMALL:
        reach = student_t(sample.size - 1, confidence) * float(sample.std(ddof=1)) / math.sqrt(sample.size)
        return Interval(mid - reach, mid, mid + reach, sample.size, confidence=confidence)
    draws = np.concatenate([figure(sample[rows]) for rows in resampled_rows(sample.size, seed)])
    low, high = expanded_percentiles(draws, sample.size, confidence)
    return Interval(min(low, mid), mid, max(high, mid), sample.size, confidence=confidence)


def paired_difference(
    base: Mapping[Key, float], other: Mapping[Key, float], *, seed: int = 0, confidence: float = 0.95
) -> Interval:
    """Mean over common keys of `other` - `base`, any unit; bootstrap over keys.

    Raises:
        CampaignError: no common key, or a value that is not finite.
    """
    one, two, dropped = _aligned(base, other)
    return replace(bootstrap_interval(two - one, seed=seed, confidence=confidence), dropped=dropped)


def paired_share_difference(
    base: Mapping[Key, bool], other: Mapping[Key, bool], *, confidence: float = 0.95
) -> Interval:
    """Share of successes of `other` minus that of `base` on the items that both have, -1 to 1.

    The interval is centred where Agresti and Min centre it, a little nearer to 0 than `mid`.

    Raises:
        CampaignError: no common item.
    """
    one, two, dropped = _aligned(base, other)
    n = one.size
    gained, lost = float(np.sum(two > one)), float(np.sum(one > two))
    up, down, total = gained + 0.5, lost + 0.5, n + 2.0
    centre = (up - down) / total
    reach = float(ndtri((1 + confidence) / 2)) * math.sqrt((up + down) - (up - down) ** 2 / total) / total
    mid = (gained - lost) / n
    return Interval(
        max(-1.0, min(centre - reach, mid)), mid, min(1.0, max(centre + reach, mid)), n, dropped, confidence
    )


def tight_enough(interval: Interval, target_relative_half_width: float, *, least_n: int = 8) -> bool:
    """Whether measuring may stop early.

    Fewer than `least_n` values never suffice: a lucky handful of equal ones looks tight.
    """
    return interval.n >= least_n and interval.relative_half_width <= target_relative_half_width


def equivalence(interval: Interval, margin: float, *, around: float = 0.0) -> Verdict:
    """Judge a difference (`around=0`) or a ratio (`around=1`) against a margin of indifference.

    `equivalent`: the whole interval lies within the margin. `lower` / `higher`: the whole interval lies beyond
    it on that side. `unclear`: the data do not decide; measure more.
    """
    if interval.low > around - margin and interval.high < around + margin:
        return "equivalent"
    if interval.high < around - margin:
        return "lower"
    return "higher" if interval.low > around + margin else "unclear"


@dataclass(frozen=True, slots=True)
class DriftReport:
    """Whether a machine kept its speed while a campaign ran.

    Attributes:
        verdict: `steady` (every change lies within the tolerance), `drifting` (one is real and larger than the
            tolerance), or `unclear` (too noisy to tell).
        largest: TPOT of the later cell / TPOT of the earlier one, for the pair that differs most.
        earlier: position of that pair's earlier cell among the baselines.
        later: position of its later cell.
        tolerance: relative change that was allowed.
        from_first: TPOT of each cell / TPOT of the first one; the first is exactly 1.
    """

    verdict: Literal["steady", "drifting", "unclear"]
    largest: Interval
    earlier: int
    later: int
    tolerance: float
    from_first: tuple[Interval, ...]

    @property
    def relative_change(self) -> float:
        """Largest change of TPOT, 0.05 for 5 % slower, -0.05 for 5 % faster."""
        return self.largest.mid - 1

    @property
    def drifted(self) -> bool:
        """Whether a real change, larger than the tolerance, was seen."""
        return self.verdict == "drifting"

    @property
    def summary(self) -> str:
        """One sentence for tables and reports."""
        size = f"{abs(self.relative_change):.1%} {'slower' if self.relative_change > 0 else 'faster'}"
        ends = f"{self.largest.low - 1:+.1%} to {self.largest.high - 1:+.1%}"
        pair = f"baseline {self.later + 1} of {len(self.from_first)}", f"number {self.earlier + 1}"
        seen = f"{pair[0]} was {size} than {pair[1]} ({ends})"
        return {
            "steady": f"The machine kept its speed within {self.tolerance:.0%}: {seen}.",
            "drifting": f"The machine's speed moved: {seen}.",
            "unclear": f"Too noisy to tell whether the machine kept its speed: {seen}.",
        }[self.verdict]

    def as_dict(self) -> dict[str, object]:
        """JSON form."""
        return {
            "verdict": self.verdict,
            "relative_change": self.relative_change,
            "largest": self.largest.as_dict(),
            "earlier": self.earlier,
            "later": self.later,
            "tolerance": self.tolerance,
            "from_first": [interval.as_dict() for interval in self.from_first],
        }


def drift(
    baselines: Sequence[Mapping[Key, float]], *, tolerance: float = 0.03, seed: int = 0, confidence: float = 0.95
) -> DriftReport:
    """Compare a baseline cell that was repeated, say at the start, in the middle and at the end.

    All pairs are compared on their common prompts, at a level that is corrected for the number of pairs
    (Bonferroni), so that more repeats do not by themselves raise an alarm.

    Args:
        baselines: TPOT in seconds by prompt key of each repeat, in the order of time; at least two.
        tolerance: relative change of TPOT that is taken as steady.
        seed: of the bootstrap.
        confidence: that a steady machine is not called drifting.

    Raises:
        CampaignError: fewer than two cells, or two cells without a common prompt.
    """
    if len(baselines) < 2:
        raise CampaignError(
            "drift needs the baseline cell at least twice",
            evidence=f"{len(baselines)} cells",
            next_step="let the plan repeat the baseline at the start, in the middle and at the end",
        )
    pairs = list(itertools.combinations(range(len(baselines)), 2))
    level = 1 - (1 - confidence) / len(pairs)
    changes = {(i, j): paired_speedup(baselines[j], baselines[i], seed=seed, confidence=level) for i, j in pairs}
    (earlier, later), largest = max(changes.items(), key=lambda item: abs(math.log(item[1].mid)))
    if any(c.excludes(1.0) and abs(c.mid - 1) > tolerance for c in changes.values()):
        verdict: Literal["steady", "drifting", "unclear"] = "drifting"
    elif all(equivalence(c, tolerance, around=1.0) == "equivalent" for c in changes.values()):
        verdict = "steady"
    else:
        verdict = "unclear"
    same = Interval(1.0, 1.0, 1.0, len(baselines[0]), confidence=level)
    from_first = (same, *(changes[0, j] for j in range(1, len(baselines))))
    return DriftReport(verdict, largest, earlier, later, tolerance, from_first)


def _aligned(base: Mapping[Key, float], other: Mapping[Key, float]) -> tuple[Floats, Floats, int]:
    """Values of both sides for the common keys in one fixed order, and the number of keys dropped."""
    common = sorted(base.keys() & other.keys(), key=str)
    if not common:
        raise CampaignError(
            "two variants have no prompt in common",
            evidence=f"{len(base)} and {len(other)} prompts",
            next_step="measure both with the same workload and seed",
        )
    sides = (np.array([float(side[key]) for key in common], dtype=np.float64) for side in (base, other))
    one, two = sides
    return one, two, len(base) + len(other) - 2 * len(common)


def _require_positive(*sides: Floats) -> None:
    if not all(np.isfinite(side).all() and (side > 0).all() for side in sides):
        raise CampaignError(
            "a time or throughput is not a positive finite number",
            evidence=f"smallest {min(float(side.min()) for side in sides)!r}",
            next_step="leave out requests that failed or gave fewer than two tokens",
        )


def _repeats_variance(one: Floats, two: Floats, repeats: Sequence[Hashable]) -> float:
    """What repeats add to the variance of log(mean(one)/mean(two)), beyond what prompts explain in each."""
    logs, within = [], []
    labels = np.array([str(repeat) for repeat in repeats])
    for label in np.unique(labels):
        a, b = one[labels == label], two[labels == label]
        if a.size > 1:
            influence = a / a.mean() - b / b.mean()
            logs.append(math.log(a.mean() / b.mean()))
            within.append(float(influence.var(ddof=1)) / a.size)
    if len(logs) < 2:
        return 0.0
    # A repeat whose prompts agree to the last bit still has a variance; weights must stay finite.
    weight = 1 / np.maximum(np.array(within), 1e-12)
    mean = float(np.average(logs, weights=weight))
    excess = float((weight * (np.array(logs) - mean) ** 2).sum()) - (len(logs) - 1)
    scale = float(weight.sum() - (weight**2).sum() / weight.sum())
    return max(0.0, excess / scale) / len(logs)


def _widened(low: float, mid: float, high: float, variance: float, confidence: float) -> tuple[float, float]:
    """An interval of a ratio with more variance of its logarithm; both parts are independent."""
    more = float(ndtri((1 + confidence) / 2)) * math.sqrt(variance)
    below = math.hypot(math.log(mid / low), more) if low > 0 else math.inf
    above = math.hypot(math.log(high / mid), more) if math.isfinite(high) else math.inf
    return mid * math.exp(-below), mid * math.exp(above)


def _ratio_of_means(one: Floats, two: Floats, seed: int, confidence: float) -> tuple[float, float, float]:
    """Low, mid, high of mean(one)/mean(two), resampling pairs."""
    n, mid = one.size, float(one.mean() / two.mean())
    if n == 1:
        return 0.0, mid, math.inf
    if n < SMALL:
        influence = one / one.mean() - two / two.mean()
        reach = student_t(n - 1, confidence) * float(influence.std(ddof=1)) / math.sqrt(n)
        return mid * math.exp(-reach), mid, mid * math.exp(reach)
    draws = np.concatenate([one[rows].mean(axis=1) / two[rows].mean(axis=1) for rows in resampled_rows(n, seed)])
    low, high = expanded_percentiles(draws, n, confidence)
    return min(low, mid), mid, max(high, mid)
