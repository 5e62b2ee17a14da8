from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.campaign.made import cell

from outrider.campaign.adaptive import Place, next_places, opening
from outrider.campaign.plan import CampaignPlan
from outrider.decide.adaptive import chooser
from outrider.stack import find_stack

if TYPE_CHECKING:
    from outrider.campaign.cell import Cell

GRID = [Place((x, y), (float(x), float(y))) for x in range(8) for y in range(5)]


def test_the_opening_covers_the_corners() -> None:
    assert {(0, 0), (7, 4)} <= set(opening(GRID, 4))
    spread = opening(GRID, 6)
    assert len(set(spread)) == 6
    assert min(math.dist(a, b) for a in spread for b in spread if a != b) > 2


def test_after_the_opening_the_greatest_doubt_comes_first() -> None:
    measured = opening(GRID)
    assert next_places(GRID, measured, {(3, 3): 0.02, (4, 4): 0.05, (1, 1): 0.0001}, budget=20) == [(4, 4)]
    assert next_places(GRID, measured, {(3, 3): 0.02, (4, 4): 0.05}, budget=20, batch=5) == [(4, 4), (3, 3)]


def test_small_doubts_end_it() -> None:
    assert next_places(GRID, opening(GRID), {(3, 3): 0.0001}, budget=20) == []


@given(st.integers(1, 40), st.dictionaries(st.sampled_from([p.key for p in GRID]), st.floats(0, 1)))
def test_it_ends_within_its_budget_and_never_repeats_a_place(budget: int, doubts: dict[tuple[int, int], float]) -> None:
    measured: list[tuple[int, int]] = []
    while chosen := next_places(GRID, measured, doubts, budget=budget, batch=3):
        assert not set(chosen) & set(measured)
        measured += chosen
    assert len(measured) <= budget


def plan() -> CampaignPlan:
    return CampaignPlan.for_stack(
        find_stack("smollm2-cpu"), variants=["baseline", "eagle3"], concurrency=[1, 2, 4, 8, 16, 32], repeats=1
    )


def measured(plan: CampaignPlan, gain: dict[int, float], *, broken: bool = False) -> list[Cell]:
    """Run the chooser to its end against an engine whose speedup by concurrency is `gain`."""
    digest = find_stack("smollm2-cpu").digest()
    choose, cells = chooser(find_stack("smollm2-cpu"), plan, share=0.5), []
    while keys := choose(cells):
        for key in keys:
            base = 0.05 * key.concurrency**0.5
            tpot = base if key.variant == "baseline" else base / gain[key.concurrency]
            error = "the engine died" if broken else None
            made = cell(key.variant, key.workload, key.concurrency, tpot_s=tpot, error=error,
                        al=2.0 if key.variant == "eagle3" else None)  # fmt: skip
            cells.append(
                made.model_copy(update={"provenance": made.provenance.model_copy(update={"stack_digest": digest})})
            )
    return cells


def test_a_campaign_measures_part_of_its_grid_pairwise() -> None:
    cells = measured(plan(), {1: 1.5, 2: 1.4, 4: 1.2, 8: 1.0, 16: 0.9, 32: 0.8})
    keys = {c.key for c in cells}
    assert 8 <= len(keys) == len(cells) <= len(plan().cells()) / 2
    places = {(k.workload, k.concurrency) for k in keys}
    assert len(keys) == 2 * len(places)
    assert {w for w, _ in places} == {"edit", "chat"}


def test_an_engine_that_always_dies_does_not_keep_it_going() -> None:
    cells = measured(plan(), dict.fromkeys([1, 2, 4, 8, 16, 32], 1.0), broken=True)
    assert len(cells) == len({c.key for c in cells}) <= 12


def test_the_same_cells_lead_to_the_same_next_ones() -> None:
    choose = chooser(find_stack("smollm2-cpu"), plan(), share=0.5)
    assert choose([]) == choose([])
    assert choose([])[0].variant == "baseline"


@pytest.mark.parametrize("share", [0.4, 0.25])
def test_the_replay_of_the_public_cells_decides_as_the_whole_grid(share: float) -> None:
    from benchmarks.adaptive.replay import replay  # noqa: PLC0415 - a script of the tree, not a package
    from tests.unit.predict.made import PUBLIC, flagship  # noqa: PLC0415

    from outrider.predict.observations import read_observations  # noqa: PLC0415

    found = replay(flagship(), read_observations(PUBLIC, flagship()), share)
    assert found["share"] <= share
    assert found["same_beyond_3pct"] >= (1.0 if share == 0.4 else 0.9)
    assert found["regret"] <= 0.005
