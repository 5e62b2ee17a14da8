"""Step times that outliers do not spoil: prefills that slipped in, graph captures, pauses of the machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

# A step longer than so many medians was no decode step.
_OUTLIER = 2.0


def typical(samples: Sequence[float]) -> float:
    """Mean of samples in seconds without the extremes.

    Not the median: with look-up drafters steps with and without drafts differ, and what counts is their mean.
    One sample in twelve is left out at either end, and the rest is bounded by two medians.

    Raises:
        ValueError: there is no sample.
    """
    if not samples:
        msg = "no step was timed"
        raise ValueError(msg)
    ordered = sorted(samples)
    cut = (len(ordered) + 5) // 12 if len(ordered) >= 5 else 0
    kept = ordered[cut : len(ordered) - cut]
    bound = _OUTLIER * ordered[len(ordered) // 2]
    return sum(min(sample, bound) for sample in kept) / len(kept)


class Recent:
    """The last step times under one k; storing one allocates nothing."""

    __slots__ = ("_count", "_next", "_ring")

    def __init__(self, length: int) -> None:
        """Room for `length` samples."""
        self._ring = [0.0] * length
        self._next = 0
        self._count = 0

    def add(self, seconds: float) -> None:
        """Store one, over the oldest."""
        self._ring[self._next] = seconds
        self._next = (self._next + 1) % len(self._ring)
        self._count += self._count < len(self._ring)

    def clear(self) -> None:
        """Forget all."""
        self._next = self._count = 0

    def __len__(self) -> int:
        return self._count

    def samples(self) -> list[float]:
        """What is stored, in no particular order."""
        return self._ring[: self._count]
