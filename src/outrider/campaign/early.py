"""When a place of the grid needs no further repeat."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outrider.campaign.stats import tight_enough

if TYPE_CHECKING:
    from collections.abc import Sequence

    from outrider.campaign.cell import CellKey
    from outrider.campaign.compare import Point


def settled(key: CellKey, points: Sequence[Point], variants: Sequence[str], precision: float) -> bool:
    """Whether a cell may be left out because its place is known well enough.

    Args:
        key: the cell that is next.
        points: of what has been measured so far.
        variants: all that the plan measures; their prompts are paired, so a place is settled for all or none.
        precision: half width of an interval over its middle that is tight enough, e.g. 0.03.

    Returns:
        True if every variant's speedup there, and baseline's TPOT, lies within that precision.
    """
    here = {p.variant: p for p in points if (p.workload, p.concurrency) == (key.workload, key.concurrency)}
    figures = [
        (here[v].tpot_s if v == "baseline" else here[v].speedup) if v in here and here[v].usable else None
        for v in variants
    ]
    return all(figure is not None and tight_enough(figure, precision) for figure in figures)
