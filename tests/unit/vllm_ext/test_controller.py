from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from tests.unit.vllm_ext.simulated import Engine, Traffic, settings

from outrider.vllm_ext.band import band_edges
from outrider.vllm_ext.controller import Controller
from outrider.vllm_ext.settings import Settings

PAYS = Traffic({0: 1.0, 1: 1.1, 2: 1.2, 3: 1.3}, acceptance=0.7)
LOSES = Traffic({0: 1.0, 1: 1.3, 2: 1.6, 3: 1.9}, acceptance=0.2)
PEAKS_AT_2 = Traffic({0: 1.0, 1: 1.25, 2: 1.3, 3: 1.9}, acceptance=0.7, batch=8)


@st.composite
def traffic(draw: st.DrawFn) -> Traffic:
    extra = draw(st.lists(st.floats(0.02, 0.7), min_size=3, max_size=3))
    cost = {0: 1.0}
    for k, more in enumerate(extra, start=1):
        cost[k] = cost[k - 1] + more
    return Traffic(cost, draw(st.floats(0.0, 0.95)), draw(st.sampled_from([1, 3, 8, 32])))


@hypothesis_settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(traffic=traffic(), prior=st.sampled_from([0, 1, 3]), seed=st.integers(0, 2**16))
def test_it_converges_without_flapping_whatever_costs_and_acceptance_are(
    traffic: Traffic, prior: int, seed: int
) -> None:
    engine = Engine(settings(prior), seed=seed)
    engine.run(traffic, 1500)
    settled = len(engine.switches)

    speed = engine.run(traffic, 4000)

    assert speed >= 0.94 * traffic.best, (traffic, engine.switches)
    # The tests' budget, and what two equals cost at concurrency 1, where acceptance is learnt slowest.
    assert speed >= 0.955, "slower than k=0 all the time"
    # Where two k are equally fast it may wander between them, at ever longer intervals.
    assert len(engine.switches) - settled <= 12
    assert set(engine.ks) <= {0, 1, 2, 3}


@pytest.mark.parametrize("prior", [0, 3])
@pytest.mark.parametrize(("traffic", "expected"), [(PAYS, {2, 3}), (LOSES, {0}), (PEAKS_AT_2, {2})])
def test_it_finds_the_best_k_from_any_prior(traffic: Traffic, expected: set[int], prior: int) -> None:
    engine = Engine(settings(prior), seed=1)
    engine.run(traffic, 3000)

    assert engine.controller.band_of(traffic.batch).k in expected


def test_a_change_of_traffic_is_followed_in_both_directions() -> None:
    engine = Engine(settings(3), seed=2)
    engine.run(PAYS, 800)
    assert engine.controller.band_of(1).k == 3
    engine.run(LOSES, 1200)
    assert engine.controller.band_of(1).k == 0
    engine.run(PAYS, 2500)
    assert engine.controller.band_of(1).k == 3


def test_every_batch_size_has_its_own_k() -> None:
    dear = Traffic({0: 1.0, 1: 1.8, 2: 2.4, 3: 3.0}, acceptance=0.7, batch=16)
    engine = Engine(settings(3), seed=3)
    engine.run(PAYS, 600)
    engine.run(dear, 600)

    assert engine.controller.band_of(1).k == 3
    assert engine.controller.band_of(16).k == 0
    assert engine.lookup[1] == 3


@hypothesis_settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(traffic=traffic(), seed=st.integers(0, 2**16))
def test_no_long_time_passes_without_k_0_and_without_speculation(traffic: Traffic, seed: int) -> None:
    chosen = settings(3)
    engine = Engine(chosen, seed=seed)
    engine.run(traffic, 6000)

    # Clean steps between two tests, the tests of the other k and outliers that were waited for included.
    longest = chosen.longest_set + 12 * len(chosen.ks) * (chosen.test_steps + chosen.settle_steps)
    for kind in (lambda k: k == 0, lambda k: k > 0):
        at = [0, *(i for i, k in enumerate(engine.ks) if kind(k)), len(engine.ks)]
        assert max(b - a for a, b in pairwise(at)) <= longest


def test_tests_while_k_0_is_best_lose_no_more_than_about_their_budget() -> None:
    hopeless = Traffic({0: 1.0, 1: 1.5, 2: 2.0, 3: 2.5}, acceptance=0.02, batch=8)
    engine = Engine(settings(0), seed=4)
    engine.run(hopeless, 1500)

    assert engine.run(hopeless, 8000) >= 0.985


@pytest.mark.parametrize("seed", range(4))
def test_from_k_0_it_finds_the_one_that_pays_between_two_that_do_not(seed: int) -> None:
    engine = Engine(settings(0), seed=seed)
    engine.run(Traffic({0: 1.0, 1: 1.65, 2: 1.66, 3: 2.6}, acceptance=0.6, batch=8), 1500)
    assert engine.controller.band_of(8).k == 2


def test_from_k_0_it_does_not_try_what_could_not_pay_at_the_shortest_drafts_cost() -> None:
    engine = Engine(settings(0), seed=9)
    engine.run(LOSES, 4000)
    assert 2 not in engine.ks


@pytest.mark.parametrize(("dear", "longest"), [(3.3, 4), (1.5, 9)])
def test_a_test_that_is_far_from_paying_ends_early_and_one_that_may_pay_does_not(dear: float, longest: int) -> None:
    traffic = Traffic({0: 1.0, 1: 1.4, 2: 1.45, 3: dear}, acceptance=0.45, batch=32)
    engine = Engine(settings(0), seed=7, outliers=0.0)
    engine.run(traffic, 40)

    tried = [i for i, k in enumerate(engine.ks) if k == 3]
    # A step more than are timed: the first drafts only.
    assert tried == list(range(tried[0], tried[0] + longest))


def test_outliers_do_not_decide() -> None:
    engine = Engine(settings(3), seed=5, outliers=0.1)
    engine.run(PAYS, 2000)

    assert engine.run(PAYS, 2000) >= 0.95 * PAYS.best


def test_held_it_measures_and_never_leaves_the_prior() -> None:
    engine = Engine(settings(3, hold=True), seed=6)
    engine.run(LOSES, 1000)

    assert set(engine.ks) == {3}
    assert engine.controller.bands[0].steps > 900
    assert engine.switches == []


def test_a_switch_says_why() -> None:
    engine = Engine(settings(3), seed=7)
    engine.run(LOSES, 1000)

    first = engine.switches[0]
    assert (first.band, first.before) == ("1", 3)
    assert "tokens a step at" in first.why
    assert "at k=3" in first.why


def test_steps_that_verified_another_k_than_they_drafted_are_not_timed() -> None:
    lookup = [0, *[3] * 8]
    controller = Controller(Settings(prior=((1, 8, 3),), ks=(0, 1, 2, 3)), lookup)
    controller.observe(1, 3, 3, [0, 1, 0, 0, 0], 0.02)
    controller.observe(1, 0, 3, [0, 1, 0, 0, 0], 99.0)
    controller.observe(1, 3, 1, [0, 1, 0, 0, 0], 99.0)
    controller.observe(1, 3, 3, [0, 1, 0, 0, 0], None)

    assert controller.clean_steps == 1
    assert controller.bands[0].times[3].samples() == [0.02]


@hypothesis_settings(deadline=None)
@given(
    edges=st.lists(st.integers(2, 256), max_size=4, unique=True).map(sorted),
    largest=st.integers(1, 256),
)
def test_bands_cover_every_batch_once_and_respect_the_priors_edges(edges: list[int], largest: int) -> None:
    starts = [1, *edges]
    prior = [(first, after - 1, i % 4) for i, (first, after) in enumerate(zip(starts, [*edges, 1025], strict=True))]

    bands = band_edges(prior, largest)

    assert [b for first, last in bands for b in range(first, last + 1)] == list(range(1, largest + 1))
    for first, last in bands:
        ks = {k for b in (first, last) for lo, hi, k in prior if lo <= b <= hi}
        assert len(ks) == 1
