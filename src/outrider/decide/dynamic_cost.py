"""What the dynamic path costs: same k, static against dynamic; K = 0 in a schedule against no speculation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from outrider.predict.observations import Observation


@dataclass(frozen=True, slots=True)
class DynamicCost:
    """Relative extra time per token.

    Attributes:
        speculating: of k chosen by a schedule, over the same k fixed.
        off: of K = 0 inside a schedule, over plain decoding.
        source: where it comes from.
        pairs: cells behind it.
    """

    speculating: float
    off: float
    source: str
    pairs: int = 0


# The 8-layer cells on one H200 (V2 runner, full decode graphs): dyn3 within 0.5 % of static3 at every batch; K = 0
# 7 % slower than no speculation. The V1 runner on CUDA falls back to piecewise graphs and was not measured.
UNMEASURED = DynamicCost(0.0, 0.07, "assumed as on one H200 with the V2 runner; not measured on this node")


def dynamic_cost(cells: Sequence[Observation]) -> DynamicCost:
    """From cells under a schedule and static ones at the same place with the same k in force.

    A faster dynamic cell counts as no cost. Kinds without a pair keep the assumed cost.
    """
    static: dict[tuple[object, ...], list[float]] = {}
    for cell in cells:
        if not cell.dynamic:
            static.setdefault((cell.place, cell.k), []).append(cell.rate)
    ratios: dict[bool, list[float]] = {True: [], False: []}
    for cell in cells:
        same = static.get((cell.place, cell.k))
        if cell.dynamic and same:
            ratios[cell.k > 0].append(math.fsum(same) / len(same) / cell.rate)
    if not any(ratios.values()):
        return UNMEASURED
    assumed = {True: UNMEASURED.speculating, False: UNMEASURED.off}
    own = {kind: max(0.0, math.fsum(v) / len(v) - 1) if v else assumed[kind] for kind, v in ratios.items()}
    return DynamicCost(
        own[True],
        own[False],
        "measured: same k, static against dynamic",
        len(ratios[True]) + len(ratios[False]),
    )
