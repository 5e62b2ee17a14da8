"""Chooses the next cells of a campaign by what the model fitted to its cells is in doubt about."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING

from outrider.campaign.adaptive import Place, next_places
from outrider.decide.doubts import doubts
from outrider.errors import OutriderError
from outrider.predict.observations import observations_of
from outrider.predict.session import open_session
from outrider.predict.surface import Wanted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from outrider.campaign.cell import Cell, CellKey
    from outrider.campaign.plan import CampaignPlan
    from outrider.predict.observations import Observation
    from outrider.stack import Stack

Spot = tuple[str, int]
# Octaves that another workload counts as: it has an acceptance of its own.
_WORKLOAD_OCTAVES = 4.0
# Tokens in the cache where a workload was not measured yet.
_UNKNOWN_CONTEXT = 512.0
_DRAWS = 16


def chooser(stack: Stack, plan: CampaignPlan, *, share: float) -> Callable[[Sequence[Cell]], list[CellKey]]:
    """A function from the cells so far to the cells to measure now; an empty list ends the campaign.

    A spot is a workload at a concurrency, measured with all variants and repeats, so that comparisons stay paired.

    Args:
        stack: what is measured.
        plan: the whole grid.
        share: of its spots that may be measured.
    """
    keys: defaultdict[Spot, list[CellKey]] = defaultdict(list)
    for key in plan.cells():
        keys[key.workload, key.concurrency].append(key)
    grid = [Place(spot, (_WORKLOAD_OCTAVES * plan.workloads.index(spot[0]), math.log2(spot[1]))) for spot in keys]
    budget = max(1, math.floor(share * len(grid)))
    # One engine at a time: each round costs a start of every variant, so rounds are larger.
    batch = 1 if plan.co_resident else max(2, budget // 4)

    def choose(cells: Sequence[Cell]) -> list[CellKey]:
        tried = {cell.key for cell in cells}
        measured = [spot for spot, own in keys.items() if any(key in tried for key in own)]
        worries = _worries(stack, plan, [s for s in keys if s not in measured], cells)
        spots = next_places(grid, measured, worries, budget=budget, batch=batch)
        chosen = {key for spot in [*measured, *spots] for key in keys[spot]}
        return [key for key in plan.cells() if key in chosen and key not in tried]

    return choose


def _worries(stack: Stack, plan: CampaignPlan, spots: Sequence[Spot], cells: Sequence[Cell]) -> dict[Spot, float]:
    try:
        observed = observations_of([(cell.cell_id, cell.to_json()) for cell in cells], stack)
        session = open_session(stack, observed, draws=_DRAWS)
        return doubts(session, {spot: _options(stack, plan, spot, observed) for spot in spots})
    except OutriderError:
        # Without a model every spot is equally doubtful, and the campaign goes on by its grid.
        return dict.fromkeys(spots, 1.0)


def _options(stack: Stack, plan: CampaignPlan, spot: Spot, cells: Sequence[Observation]) -> list[Wanted]:
    workload, batch = spot
    contexts = [cell.context for cell in cells if cell.workload == workload]
    context = math.fsum(contexts) / len(contexts) if contexts else _UNKNOWN_CONTEXT
    found = []
    for name in plan.variants:
        spec = stack.variants[name].speculation
        if spec is not None and not spec.schedule and not spec.auto:
            found.append(Wanted(name, spec.k, batch, context, workload=workload))
    return found
