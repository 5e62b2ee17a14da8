"""How many tokens a step yields at each k, from what was accepted lately.

A draft of k tokens begins with the draft of every smaller k, so one step at k tells the acceptance of all positions up
to k, and tokens per step follow for each of them. Only what a step *costs* has to be tried out for every k. Acceptance
belongs to the traffic, not to the batch, so all bands share it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

# Steps of one request resemble each other: so many of them count as one independent observation.
_ALIKE = 2.0


class Acceptance:
    """Decayed acceptance by position, each given that the one before was accepted.

    Evidence decays with every request-step, whether it drafted or not: with k = 0 in force what was known fades, so
    that the next test decides by itself. A short draft renews the first positions only; the later ones keep what was
    known of them, which is a guess until a longer draft is tried.
    """

    __slots__ = ("_accepted", "_decay", "_reached", "_seen", "positions")

    def __init__(self, positions: int, half_life: float) -> None:
        """Nothing is known yet.

        Args:
            positions: largest k.
            half_life: request-steps after which an observation weighs half.
        """
        self.positions = positions
        self._decay = math.log(2.0) / half_life
        self._seen = [0.0] * positions
        self._reached = [0.0] * positions
        self._accepted = [0.0] * positions

    def observe(self, requests: int, k: int, yielded: Sequence[int]) -> None:
        """Take in one decode step.

        Args:
            requests: in the step.
            k: drafts that each of them could have had verified.
            yielded: at index m, how many requests got m tokens; length `positions + 2`.
        """
        keep = math.exp(-self._decay * requests)
        seen, reached, accepted = self._seen, self._reached, self._accepted
        got = 0
        for position in range(self.positions - 1, -1, -1):
            seen[position] *= keep
            reached[position] *= keep
            accepted[position] *= keep
            got += yielded[position + 2]
            if position < k:
                seen[position] += requests
                accepted[position] += got
                if position + 1 < k:
                    reached[position + 1] += got
        if k:
            reached[0] += requests

    def evidence(self, k: int) -> float:
        """Independent observations behind `tokens(k)`; inf for k = 0."""
        return self._seen[k - 1] / _ALIKE if k else math.inf

    def tokens(self, k: int) -> float | None:
        """Tokens per step of one request at k; None while no step reached that far."""
        total = share = 1.0
        for position in range(k):
            if self._seen[position] <= 0.0:
                return None
            share *= self._conditional(position)
            total += share
        return total

    def doubt(self, k: int) -> float:
        """Standard error of `tokens(k)` relative to it; inf without evidence, 0 for k = 0."""
        tokens = self.tokens(k)
        if k == 0:
            return 0.0
        evidence = self.evidence(k)
        if tokens is None or evidence <= 0.0:
            return math.inf
        share, mean, square = 1.0, 0.0, 0.0
        for position in range(k):
            share *= self._conditional(position)
            mean += share
            square += (2 * position + 1) * share
        return math.sqrt(max(square - mean**2, 0.01) / evidence) / tokens

    def _conditional(self, position: int) -> float:
        reached = self._reached[position]
        return self._accepted[position] / reached if reached > 0.0 else 0.0
