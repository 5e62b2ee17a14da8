"""Intervals: on simulated data with known truth, 95 % intervals cover it about 95 times in 100."""

from __future__ import annotations

import numpy as np
import pytest

from outrider.campaign import resampling
from outrider.campaign.stats import (
    bootstrap_interval,
    drift,
    paired_share_difference,
    paired_speedup,
    throughput_ratio,
)

RUNS = 300


@pytest.fixture(autouse=True)
def fewer_resamples(monkeypatch):
    monkeypatch.setattr(resampling, "RESAMPLES", 600)


def coverage(truth, interval_of):
    return np.mean([not interval_of(np.random.default_rng(seed), seed).excludes(truth) for seed in range(RUNS)])


@pytest.mark.parametrize("prompts", [4, 8, 32])
def test_paired_speedup_covers_the_truth(prompts):
    """Prompts differ by a lognormal factor, the speedup varies by prompt, and both are measured with noise."""

    def simulate(rng, seed):
        level = rng.lognormal(-3, 0.3, prompts)
        gain = rng.normal(1.5, 0.2, prompts)
        noise = rng.normal(1, 0.03, (2, prompts))
        return paired_speedup(dict(enumerate(level * gain * noise[0])), dict(enumerate(level * noise[1])), seed=seed)

    assert 0.90 <= coverage(1.5, simulate) <= 0.99


@pytest.mark.parametrize(("repeats", "least"), [(2, 0.6), (4, 0.8), (8, 0.88)])
def test_a_machine_that_changes_between_repeats_is_in_the_interval(repeats, least):
    """Each engine's speed in a repeat is its own by 8 %. Two repeats tell little of it, prompts next to nothing."""

    def simulate(rng, seed, *, aware):
        keys = [(repeat, prompt) for repeat in range(repeats) for prompt in range(16)]
        speed = rng.lognormal(0, 0.08, (2, repeats))
        base, other = (
            {key: level * speed[side, key[0]] * rng.normal(1, 0.03) for key in keys}
            for side, level in enumerate((0.015, 0.01))
        )
        return paired_speedup(base, other, seed=seed, repeat_of=(lambda key: key[0]) if aware else None)

    assert least <= coverage(1.5, lambda rng, seed: simulate(rng, seed, aware=True)) <= 0.99
    assert coverage(1.5, lambda rng, seed: simulate(rng, seed, aware=False)) < 0.6


@pytest.mark.parametrize("repeats", [3, 6])
def test_throughput_ratio_covers_the_truth(repeats):
    def simulate(rng, seed):
        return throughput_ratio(rng.normal(100, 4, repeats), rng.normal(150, 9, repeats))

    assert 0.90 <= coverage(1.5, simulate) <= 0.99


@pytest.mark.parametrize(
    ("statistic", "n", "truth"),
    [("mean", 4, 1.0), ("mean", 20, 1.0), ("median", 25, 1.0), ("p90", 200, 1 + 0.2 * 1.2816)],
)
def test_bootstrap_interval_covers_the_truth(statistic, n, truth):
    assert (
        0.90
        <= coverage(truth, lambda rng, seed: bootstrap_interval(rng.normal(1, 0.2, n), statistic, seed=seed))
        <= 0.99
    )


@pytest.mark.parametrize(("gained", "lost"), [(0.05, 0.05), (0.03, 0.10)])
def test_share_difference_covers_the_truth(gained, lost):
    def simulate(rng, seed):
        kind = rng.choice(3, 100, p=[gained, lost, 1 - gained - lost])
        base = {i: bool(k == 1) if k < 2 else bool(i % 2) for i, k in enumerate(kind)}
        other = {i: bool(k == 0) if k < 2 else bool(i % 2) for i, k in enumerate(kind)}
        return paired_share_difference(base, other)

    assert 0.90 <= coverage(gained - lost, simulate) <= 0.99


def test_a_steady_machine_is_rarely_called_drifting():
    """At most 5 % of false alarms by construction; the tolerance makes them rarer still."""
    alarms = 0
    for seed in range(RUNS // 2):
        rng = np.random.default_rng(seed)
        level = rng.uniform(0.03, 0.05, 16)
        cells = [dict(enumerate(level * rng.normal(1, 0.05, 16))) for _ in range(3)]
        alarms += drift(cells, tolerance=0.01, seed=seed).verdict == "drifting"
    assert alarms / (RUNS // 2) <= 0.08


def test_intervals_shrink_with_the_root_of_the_number_of_prompts():
    def width(prompts):
        rng = np.random.default_rng(5)
        level = rng.lognormal(-3, 0.2, prompts)
        return paired_speedup(
            dict(enumerate(level * rng.normal(1, 0.1, prompts))), dict(enumerate(level))
        ).relative_half_width

    assert width(25) / width(400) == pytest.approx(4, rel=0.35)
