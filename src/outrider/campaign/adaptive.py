"""Which cells to measure when not all can be: a spread of places first, then where deciding blindly costs most.

Pure: it sees places as points and doubts as numbers. Who fits a model and turns it into doubts stands further right
(`decide.doubts`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Key = TypeVar("Key")
# Places of the opening, as a share of the grid: enough for every factor of the step-time model to be felt once.
OPENING_SHARE = 0.15
LEAST_OPENING = 4
# Expected loss of throughput under which another cell changes nothing that matters.
LEAST_LOSS = 0.002


@dataclass(frozen=True, slots=True)
class Place(Generic[Key]):
    """A place of the grid that can be measured.

    Attributes:
        key: what names it.
        axes: its position, each axis in octaves or as 0/1 for kinds.
    """

    key: Key
    axes: tuple[float, ...]


def opening(places: Sequence[Place[Key]], count: int | None = None) -> list[Key]:
    """Places that cover the grid: two opposite ends, then whichever is farthest from all chosen.

    Args:
        places: the grid.
        count: how many; None for `OPENING_SHARE` of the grid, at least `LEAST_OPENING`.
    """
    most = count if count is not None else max(LEAST_OPENING, round(OPENING_SHARE * len(places)))
    ordered = sorted(places, key=lambda place: (place.axes, str(place.key)))
    if not ordered or most < 1:
        return []
    chosen = [ordered[0]]
    while len(chosen) < min(most, len(ordered)):
        rest = [place for place in ordered if place not in chosen]
        chosen.append(max(rest, key=lambda place: min(math.dist(place.axes, c.axes) for c in chosen)))
    return [place.key for place in chosen]


def next_places(
    places: Sequence[Place[Key]],
    measured: Sequence[Key],
    doubts: Mapping[Key, float],
    *,
    budget: int,
    batch: int = 1,
    least: float = LEAST_LOSS,
) -> list[Key]:
    """Places to measure now; empty when the rest is not worth it or the budget is spent.

    Args:
        places: the grid.
        measured: keys that have a result.
        doubts: expected loss of deciding at a place without measuring it.
        budget: places that may be measured in all.
        batch: places to give at once; more save engine starts, fewer save cells.
        least: doubt under which a place is left alone.
    """
    left = budget - len(measured)
    if left <= 0:
        return []
    missing = [key for key in opening(places)[:budget] if key not in measured]
    if missing:
        return missing[:left]
    open_keys = [place.key for place in places if place.key not in measured and doubts.get(place.key, 0.0) >= least]
    return sorted(open_keys, key=lambda key: (-doubts[key], str(key)))[: min(batch, left)]
