"""Percentiles in bounded memory."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_GAMMA = 1.004  # ratio of neighbouring bucket bounds: a percentile is within 0.2 % of the sample
_FLOOR = 1e-7  # below this (0.1 us) values share one bucket
_PER_LOG = 1 / math.log(_GAMMA)
_OFFSET = 1 - math.log(_FLOOR) * _PER_LOG


class Sketch:
    """Mean (exact) and percentiles (within 0.2 %) of positive values, in memory that does not grow with them.

    A sparse histogram with logarithmic buckets: values between 0.1 us and 1 day need at most 6,900 of them.
    After DDSketch (Masson, Rim, Lee: "DDSketch: a fast and fully-mergeable quantile sketch", VLDB 2019).

    Attributes:
        count: number of values.
        total: their sum.
        low, high: smallest and largest value.
    """

    __slots__ = ("_buckets", "count", "high", "low", "total")

    def __init__(self) -> None:
        self._buckets: dict[int, int] = {}
        self.count = 0
        self.total = 0.0
        self.low = math.inf
        self.high = 0.0

    def add(self, value: float) -> None:
        """Count one value; negative ones count as 0."""
        self.add_all((value,))

    def add_all(self, values: Sequence[float]) -> None:
        """Count several values; negative ones count as 0."""
        if not values:
            return
        buckets, log = self._buckets, math.log
        for value in values:
            # `int` truncates; the offset keeps what it truncates positive, so that it rounds down.
            index = int(log(value) * _PER_LOG + _OFFSET) if value > _FLOOR else 0
            buckets[index] = buckets.get(index, 0) + 1
        self.count += len(values)
        self.total += sum(values) if min(values) >= 0 else sum(v for v in values if v > 0)
        self.low = min(self.low, max(min(values), 0.0))
        self.high = max(self.high, *values)

    def merge(self, other: Sketch) -> None:
        """Count all values of another sketch."""
        for index, n in other._buckets.items():
            self._buckets[index] = self._buckets.get(index, 0) + n
        self.count += other.count
        self.total += other.total
        self.low = min(self.low, other.low)
        self.high = max(self.high, other.high)

    @property
    def mean(self) -> float | None:
        """Exact mean; None without values."""
        return self.total / self.count if self.count else None

    def quantile(self, q: float) -> float | None:
        """Value at quantile `q` (0-1) by nearest rank; None without values."""
        if not self.count:
            return None
        rank = max(1, math.ceil(q * self.count))
        if rank == self.count:
            return self.high
        for index in sorted(self._buckets):
            rank -= self._buckets[index]
            if rank <= 0:
                middle = _FLOOR * _GAMMA ** (index - 0.5) if index else 0.0
                return min(max(middle, self.low), self.high)
        return self.high

    @property
    def buckets(self) -> int:
        """Buckets in use."""
        return len(self._buckets)
