"""Which measurement would say most about the decision."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scipy.special import ndtr

if TYPE_CHECKING:
    from collections.abc import Sequence

    from outrider.campaign.stats import Interval
    from outrider.decide.options import Option
    from outrider.decide.places import PlaceChoice

_Z = 1.96


@dataclass(frozen=True, slots=True)
class NextCell:
    """A cell worth measuring.

    Attributes:
        option: variant and place.
        expected_loss: share of throughput that deciding without it is expected to lose there.
        why: one sentence.
    """

    option: Option
    expected_loss: float
    why: str


def expected_loss(speedup: Interval) -> float:
    """Throughput that the better-looking side is expected to lose, as a share: the value of knowing the truth.

    With log speedup normal around m with standard deviation s, choosing by the sign of m loses
    s phi(m/s) - |m| Phi(-|m|/s) on average (expected value of perfect information; H. Raiffa, R. Schlaifer,
    *Applied Statistical Decision Theory*, 1961).
    """
    mid = abs(math.log(speedup.mid))
    spread = math.log(speedup.high / speedup.low) / (2 * _Z) if speedup.low > 0 else math.inf
    if not math.isfinite(spread):
        return math.inf
    if spread <= 0:
        return 0.0
    z = mid / spread
    density = math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    return max(0.0, spread * density - mid * float(ndtr(-z)))


def worth_measuring(choices: Sequence[PlaceChoice], *, most: int = 5, least: float = 0.002) -> list[NextCell]:
    """Unmeasured cells by expected loss, the greatest first.

    Args:
        choices: the surface.
        most: cells to name.
        least: expected loss under which measuring changes nothing that matters.
    """
    found = []
    for choice in choices:
        for option in choice.options:
            if option.speedup is None or option.source == "measured":
                continue
            loss = expected_loss(option.speedup)
            if loss >= least:
                found.append(NextCell(option, loss, _why(option)))
    return sorted(found, key=lambda cell: -cell.expected_loss)[:most]


def _why(option: Option) -> str:
    gain = option.speedup
    if gain is None:
        return ""
    doubt = f"predicted {gain.mid:.2f}x, anywhere from {gain.low:.2f} to {gain.high:.2f}"
    if option.extrapolated:
        return f"{doubt}: far outside what was measured"
    return f"{doubt}: the interval holds parity" if not gain.excludes(1.0) else f"{doubt}: chosen without a measurement"
