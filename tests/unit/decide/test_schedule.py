from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.predict.made import SHAPE, STEP_COST

from outrider.campaign.stats import Interval
from outrider.decide.dynamic_cost import UNMEASURED, DynamicCost, dynamic_cost
from outrider.decide.errors import DecideError
from outrider.decide.schedule import build_schedule
from outrider.predict.observations import read_observations
from outrider.preflight.checks.speculation import schedule_problems
from outrider.stack import Speculation, find_stack

FREE = DynamicCost(0.0, 0.0, "made")
BATCHES = [1, 2, 4, 8, 16, 32, 64, 128]


def sure(value: float) -> Interval:
    return Interval(value * 0.99, value, value * 1.01, 9)


def gains(**by_k: list[float]) -> dict[int, dict[int, Interval]]:
    """`k3=[...]`: speedups by batch."""
    return {b: {int(k[1:]): sure(v[i]) for k, v in by_k.items()} for i, b in enumerate(BATCHES)}


def test_speculation_ends_where_it_stops_paying() -> None:
    made = build_schedule(gains(k3=[1.6, 1.5, 1.4, 1.3, 1.1, 0.8, 0.6, 0.5]), FREE, max_batch=128)
    assert made.bands == ((1, 31, 3), (32, 128, 0))
    assert (made.k_at(1), made.k_at(31), made.k_at(32), made.k_at(500)) == (3, 3, 0, 0)
    assert made.worthwhile


def test_k_shrinks_with_batch() -> None:
    made = build_schedule(
        gains(k1=[1.2, 1.2, 1.2, 1.2, 1.2, 1.2, 1.2, 1.2], k5=[1.9, 1.8, 1.7, 1.5, 1.0, 0.8, 0.6, 0.5]),
        FREE,
        max_batch=128,
    )
    assert [band[2] for band in made.bands] == [5, 1]


def test_noise_around_parity_opens_no_band() -> None:
    wobble = [1.02, 0.98, 1.03, 0.97, 1.02, 0.98, 1.03, 0.97]
    made = build_schedule(gains(k3=wobble), FREE, max_batch=128)
    assert len(made.bands) == 1
    followed = build_schedule(gains(k3=wobble), FREE, max_batch=128, inertia=0.0)
    assert len(followed.bands) > 4


def test_speculation_comes_back_where_it_pays_again_at_large_batch() -> None:
    made = build_schedule(gains(k3=[1.5, 1.4, 0.7, 0.6, 0.7, 1.4, 1.6, 1.7]), FREE, max_batch=128)
    assert [band[2] for band in made.bands] == [3, 0, 3]


def test_an_interval_that_holds_one_is_no_gain_and_no_loss() -> None:
    doubtful = {b: {3: Interval(0.8, 1.3, 1.6, 9)} for b in BATCHES}
    made = build_schedule(doubtful, FREE, max_batch=128)
    assert made.static_gain == 1.0
    assert made.static_k == 0


def test_a_dear_off_state_keeps_speculation_on_through_small_losses() -> None:
    slight = gains(k3=[1.3, 1.3, 1.2, 1.1, 0.96, 0.96, 0.96, 0.96])
    assert build_schedule(slight, DynamicCost(0.0, 0.10, "made"), max_batch=128).bands == ((1, 128, 3),)


def test_a_costly_dynamic_path_is_not_worthwhile() -> None:
    speeds = gains(k3=[1.3, 1.3, 1.3, 1.2, 1.2, 1.1, 0.8, 0.8])
    assert build_schedule(speeds, FREE, max_batch=128).worthwhile
    assert not build_schedule(speeds, DynamicCost(0.15, 0.15, "piecewise graphs"), max_batch=128).worthwhile


@given(
    st.lists(st.lists(st.floats(0.3, 2.5), min_size=8, max_size=8), min_size=1, max_size=3),
    st.integers(1, 300),
    st.floats(0, 0.2),
)
def test_every_schedule_is_one_that_the_engine_and_the_stack_take(
    rows: list[list[float]], most: int, off: float
) -> None:
    speedups = {b: {k + 1: sure(row[i]) for k, row in enumerate(rows)} for i, b in enumerate(BATCHES)}
    made = build_schedule(speedups, DynamicCost(0.0, off, "made"), max_batch=most)
    assert schedule_problems(made.bands) == []
    assert made.bands[-1][1] == most
    assert all(a[2] != b[2] for a, b in zip(made.bands, made.bands[1:], strict=False))
    assert made.gain <= made.best_gain + 1e-9
    if made.largest_k:
        Speculation(method="ngram", k=made.largest_k, schedule=made.bands)


@given(st.lists(st.floats(0.6, 1.8), min_size=8, max_size=8))
def test_inertia_never_adds_a_change(row: list[float]) -> None:
    speedups = gains(k3=row)
    kept, followed = (build_schedule(speedups, FREE, max_batch=128, inertia=i) for i in (1.0, 0.0))
    assert len(kept.bands) <= len(followed.bands)


def test_gaps_between_batches_are_refused() -> None:
    with pytest.raises(DecideError, match="same k"):
        build_schedule({1: {3: sure(1.2)}, 2: {1: sure(1.2)}}, FREE, max_batch=8)
    with pytest.raises(DecideError, match="speedups"):
        build_schedule({}, FREE, max_batch=8)


def test_the_public_step_costs_show_a_free_dynamic_path_and_a_dear_off_state() -> None:
    cost = dynamic_cost(read_observations(STEP_COST, find_stack(SHAPE)))
    assert cost.speculating == pytest.approx(0, abs=0.01)
    assert cost.off == pytest.approx(0.07, abs=0.01)
    assert cost.pairs == 10
    assert "measured" in cost.source


def test_without_cells_under_a_schedule_its_cost_is_assumed_and_says_so() -> None:
    static = [c for c in read_observations(STEP_COST, find_stack(SHAPE)) if not c.dynamic]
    assert dynamic_cost(static) == UNMEASURED
    assert "not measured" in UNMEASURED.source
    assert np.isclose(UNMEASURED.off, 0.07)
