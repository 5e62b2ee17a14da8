"""Differences between the two readings of an engine."""

import pytest

from outrider.engine.base import EngineScrape, Histogram, SpecCounters
from outrider.load.engine_window import engine_window


def tpot(total: float, count: float) -> Histogram:
    return Histogram((float("inf"),), (count,), total, count)


FIRST = EngineScrape(
    generation_tokens=100, prompt_tokens=10, first_tokens=5, preemptions=1, prefix_queries=50, prefix_hits=5,
    running=1, waiting=0, kv_cache_usage=0.1, start_time=7.0, spec=SpecCounters(10, 30, 20, (12, 8)), tpot=tpot(1.0, 5),
)  # fmt: skip
LAST = EngineScrape(
    generation_tokens=400, prompt_tokens=40, first_tokens=15, preemptions=3, prefix_queries=90, prefix_hits=9,
    running=3, waiting=2, kv_cache_usage=0.3, start_time=7.0, spec=SpecCounters(110, 330, 180, (100, 80)),
    tpot=tpot(2.0, 15),
)  # fmt: skip


def test_counters_are_differences() -> None:
    window = engine_window("e", 9.0, FIRST, LAST, [])
    assert (window.generation_tokens, window.first_tokens, window.preemptions) == (300, 10, 2)
    assert (window.prefix_queries, window.prefix_hits) == (40, 4)
    assert (window.drafts, window.draft_tokens, window.accepted_tokens) == (100, 300, 160)
    assert window.al == pytest.approx(2.6)
    assert window.accepted_per_pos == pytest.approx((0.88, 0.72))
    assert window.tokens_per_step == pytest.approx(290 / 130)
    assert (window.tpot_mean_s, window.tpot_count) == (0.1, 10)
    assert not window.restarted


def test_gauges_are_means_over_the_samples_in_between() -> None:
    between = [EngineScrape(running=n, waiting=0, kv_cache_usage=n / 10) for n in (4, 6, 8)]
    window = engine_window("e", 9.0, FIRST, LAST, between)
    assert (window.mean_running, window.mean_waiting, window.kv_cache_usage_max) == (6, 0, 0.8)
    assert window.samples == 3


def test_without_samples_the_two_ends_stand_in() -> None:
    window = engine_window("e", 9.0, FIRST, LAST, [])
    assert (window.mean_running, window.mean_waiting, window.kv_cache_usage_max) == (2, 1, 0.3)


def test_a_baseline_has_no_acceptance_and_one_token_a_step() -> None:
    bare = [EngineScrape(generation_tokens=g, first_tokens=f, start_time=1.0) for g, f in ((0, 0), (100, 10))]
    window = engine_window("e", 1.0, *bare, [])
    assert (window.tokens_per_step, window.al, window.drafts, window.accepted_per_pos) == (1.0, None, None, ())
    assert window.preemptions is None


def test_another_start_time_is_a_restart() -> None:
    window = engine_window("e", 1.0, EngineScrape(start_time=1.0), EngineScrape(start_time=2.0), [])
    assert window.restarted
