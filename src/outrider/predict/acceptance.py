"""How many tokens a step yields: from positions, a rate, or a length, always with its meaning said."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from scipy.optimize import brentq

from outrider.predict.errors import PredictError

if TYPE_CHECKING:
    from collections.abc import Sequence

_FORMS = "al=2.5 (tokens a step), rate=0.5 (accepted/drafted), conditional=0.7, or 0.7,0.5,0.35 (accepted/drafts)"


def expected_tokens(conditional: float, k: float) -> float:
    """Tokens a step of k drafts under constant conditional acceptance a: (1 - a^(k+1)) / (1 - a)."""
    if conditional >= 1:
        return k + 1.0
    return float((1 - conditional ** (k + 1)) / (1 - conditional))


def conditional_of(length: float, k: int) -> float:
    """The constant conditional acceptance that gives an acceptance length at k.

    Raises:
        PredictError: the length is outside [1, k+1].
    """
    if not 1 <= length <= k + 1 + 1e-9:
        raise PredictError(
            f"an acceptance length of {length:g} is impossible at k={k}",
            evidence=f"1 + accepted/drafts lies between 1 and {k + 1}",
            next_step="check whether it is a rate or belongs to another k",
        )
    if length <= 1:
        return 0.0
    if length >= k + 1:
        return 1.0
    return float(brentq(lambda a: expected_tokens(a, k) - length, 0.0, 1.0 - 1e-12))


@dataclass(frozen=True, slots=True)
class Acceptance:
    """What the drafter achieves.

    Attributes:
        positions: unconditional acceptance by draft position, as far as it is known.
        tail: conditional acceptance of the positions beyond.
        source: where it comes from.
    """

    positions: tuple[float, ...]
    tail: float
    source: str

    def tokens(self, k: int) -> float:
        """Tokens a step at k: 1 + the acceptance of each position; 1 for k = 0."""
        known = self.positions[:k]
        total, last = 1 + math.fsum(known), known[-1] if known else 1.0
        for _ in range(k - len(known)):
            last *= self.tail
            total += last
        return total

    @classmethod
    def constant(cls, conditional: float, source: str) -> Acceptance:
        """The same conditional acceptance at every position."""
        return cls((), conditional, source)

    @classmethod
    def of_length(cls, length: float, k: int, source: str) -> Acceptance:
        """From an acceptance length at k."""
        return cls.constant(conditional_of(length, k), source)

    @classmethod
    def of_positions(cls, positions: Sequence[float], source: str) -> Acceptance:
        """From unconditional acceptance by position.

        Raises:
            PredictError: one is outside 0-1, or acceptance rises with position.
        """
        check_positions(positions, source)
        ratios = [b / a for a, b in pairwise((1.0, *positions)) if a > 0]
        return cls(tuple(positions), ratios[-1] if ratios else 0.0, source)


def check_positions(positions: Sequence[float], where: str) -> None:
    """Refuse what cannot be unconditional acceptance.

    Raises:
        PredictError: a value outside 0-1, or one above its predecessor.
    """
    if any(not 0 <= p <= 1 for p in positions):
        raise PredictError(
            "acceptance is a share between 0 and 1",
            evidence=f"{where}: {', '.join(f'{p:g}' for p in positions)}",
            next_step="divide accepted by drafts; an acceptance length is given as al=...",
        )
    # Counters of two scrapes may be off by a draft or two.
    if any(b > a + 0.005 for a, b in pairwise(positions)):
        raise PredictError(
            "unconditional acceptance cannot rise with position",
            evidence=f"{where}: {', '.join(f'{p:g}' for p in positions)}",
            next_step="these look like conditional rates: multiply each by all before it",
        )


def parse_acceptance(text: str, k: int) -> Acceptance:
    """Read what a user gives; a bare number is refused, because it has three meanings.

    Args:
        text: `al=2.5`, `rate=0.5`, `conditional=0.7`, or comma-separated unconditional acceptance by position.
        k: at which `al` and `rate` hold.

    Raises:
        PredictError: no such form, or an impossible value.
    """
    name, _, value = text.partition("=")
    try:
        if "," in text:
            return Acceptance.of_positions([float(part) for part in text.split(",")], f"given: {text}")
        number = float(value)
    except ValueError as error:
        raise PredictError(
            f"acceptance {text!r} is not understood",
            evidence="70 % at k=3 is 3.10 tokens a step if it is accepted/drafted, 2.53 if it is conditional",
            next_step=f"say which: {_FORMS}",
        ) from error
    if name == "al":
        return Acceptance.of_length(number, k, f"given: {text} at k={k}")
    if name not in {"rate", "conditional"}:
        raise PredictError(f"there is no acceptance {name!r}", next_step=f"one of: {_FORMS}")
    check_positions([number], text)
    if name == "rate":
        return Acceptance.of_length(1 + k * number, k, f"given: {text} at k={k}")
    return Acceptance.constant(number, f"given: {text}")
