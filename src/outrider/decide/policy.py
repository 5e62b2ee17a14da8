"""Which variant to use where: the fastest whose gain is beyond doubt, else baseline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from outrider.campaign.compare import Point


@dataclass(frozen=True, slots=True)
class Choice:
    """The variant to use under one workload at one concurrency.

    Attributes:
        workload, concurrency: where.
        variant: which; None if not even baseline has a usable measurement.
        point: its figures.
        why: one sentence with the figures that decided.
    """

    workload: str
    concurrency: int
    variant: str | None
    point: Point | None
    why: str


def choose(points: Sequence[Point], unproven: Collection[str] = ()) -> list[Choice]:
    """One choice for each workload and concurrency.

    A variant wins with the highest measured speedup among those whose whole 95 % interval lies above 1;
    `baseline` wins ties, because it is simpler and cannot surprise.

    Args:
        points: what was measured.
        unproven: variants that change answers and whose quality is not known to have stayed; they are not chosen,
            however fast they are.
    """
    usable = [p for p in points if p.usable and p.variant not in unproven]
    places = dict.fromkeys((point.workload, point.concurrency) for point in points)
    return [_choice(place, [p for p in usable if (p.workload, p.concurrency) == place]) for place in places]


def _choice(place: tuple[str, int], usable: list[Point]) -> Choice:
    baseline = next((p for p in usable if p.variant == "baseline"), None)
    rivals = [p for p in usable if p.speedup is not None]
    winners = [p for p in rivals if p.speedup is not None and p.speedup.low > 1]
    if baseline is None:
        return Choice(*place, None, None, "baseline has no usable measurement: nothing to compare with")
    if winners:
        best = max(winners, key=lambda p: p.speedup.mid if p.speedup else 0.0)
        return Choice(*place, best.variant, best, f"{_gain(best)} against baseline")
    if not rivals:
        return Choice(*place, "baseline", baseline, "no other variant has a usable measurement")
    nearest = max(rivals, key=lambda p: p.speedup.mid if p.speedup else 0.0)
    verdict = "loses" if nearest.speedup and nearest.speedup.high < 1 else "is not distinguishable"
    return Choice(*place, "baseline", baseline, f"{nearest.variant} {verdict}: {_gain(nearest)}")


def _gain(point: Point) -> str:
    speedup = point.speedup
    if speedup is None:
        return "no paired measurement"
    return f"{speedup.mid:.2f}x ({speedup.low:.2f}-{speedup.high:.2f})"
