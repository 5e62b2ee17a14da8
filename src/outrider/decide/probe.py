"""Does the emitted schedule do what was expected? Judged on cells of a campaign that served it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from outrider.predict.observations import Observation

# A schedule may be this much behind the best static variant before it is not recommended.
TOLERANCE = 0.03


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """One load of the probe.

    Attributes:
        batch, workload: where.
        k: in force there.
        against: the best static variant there.
        ratio: speed of the schedule over it.
    """

    batch: int
    workload: str
    k: int
    against: str
    ratio: float

    @property
    def holds(self) -> bool:
        """Within the tolerance."""
        return self.ratio >= 1 - TOLERANCE


def judge_probe(cells: Sequence[Observation], variant: str = "dynamic") -> list[ProbeResult]:
    """The schedule against the best static variant at every load where both were measured."""
    found = []
    places = dict.fromkeys(cell.place for cell in cells if cell.variant == variant)
    for place in places:
        own = [c for c in cells if c.place == place and c.variant == variant]
        static = [c for c in cells if c.place == place and not c.dynamic and c.variant != variant]
        if not static:
            continue
        names = dict.fromkeys(c.variant for c in static)
        speeds = {name: _mean([c.rate for c in static if c.variant == name]) for name in names}
        best = max(speeds, key=lambda name: speeds[name])
        rate = _mean([c.rate for c in own])
        found.append(ProbeResult(own[0].batch, own[0].workload, own[0].k, best, rate / speeds[best]))
    return found


def recommended(results: Sequence[ProbeResult]) -> tuple[bool, str]:
    """Whether a schedule is recommended, and why in one sentence; never before it was probed."""
    if not results:
        return False, "not served yet: run the probe campaign before it carries traffic"
    behind = [r for r in results if not r.holds]
    if behind:
        worst = min(behind, key=lambda r: r.ratio)
        return False, (
            f"{len(behind)} of {len(results)} loads are more than {TOLERANCE:.0%} behind the best static variant; "
            f"worst {1 - worst.ratio:.1%} behind {worst.against} at {worst.batch} users"
        )
    return True, f"within {TOLERANCE:.0%} of the best static variant at all {len(results)} loads"


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
