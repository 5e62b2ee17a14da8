"""Intervals: properties on any input."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.campaign.stats import (
    Interval,
    bootstrap_interval,
    drift,
    equivalence,
    paired_share_difference,
    paired_speedup,
    throughput_ratio,
    tight_enough,
)
from outrider.errors import CampaignError

SECONDS = st.floats(1e-4, 10.0)
CELLS = st.dictionaries(st.integers(0, 60), SECONDS, min_size=1, max_size=40)


@settings(max_examples=60)
@given(base=CELLS, scale=st.floats(0.1, 10))
def test_a_uniform_speedup_is_found_exactly(base, scale):
    faster = {k: v / scale for k, v in base.items()}
    found = paired_speedup(base, faster)
    assert found.mid == pytest.approx(scale)
    if found.n > 1:
        assert found.low == pytest.approx(scale)
        assert found.high == pytest.approx(scale)


@settings(max_examples=60)
@given(base=CELLS, other=CELLS, seed=st.integers(0, 3))
def test_a_speedup_is_ordered_deterministic_and_counts_what_it_dropped(base, other, seed):
    common = base.keys() & other.keys()
    if not common:
        with pytest.raises(CampaignError, match="no prompt in common"):
            paired_speedup(base, other)
        return
    found = paired_speedup(base, other, seed=seed)
    assert found.low <= found.mid <= found.high
    assert found.n == len(common)
    assert found.dropped == len(base.keys() ^ other.keys())
    reordered = dict(reversed(base.items()))
    assert paired_speedup(reordered, other, seed=seed) == found


@settings(max_examples=40)
@given(base=CELLS)
def test_no_speedup_over_itself(base):
    assert not paired_speedup(base, base).excludes(1.0)


def test_seeds_differ_in_the_ends_but_not_in_the_figure():
    rng = np.random.default_rng(1)
    base, other = (dict(enumerate(rng.lognormal(-3, 0.4, 40))) for _ in range(2))
    one, two = paired_speedup(base, other, seed=1), paired_speedup(base, other, seed=2)
    assert one.mid == two.mid
    assert one.low != two.low
    assert one.low == pytest.approx(two.low, rel=0.03)


def test_a_speedup_is_the_ratio_of_mean_tpot():
    assert paired_speedup({"a": 0.04, "b": 0.02}, {"a": 0.02, "b": 0.02}).mid == pytest.approx(1.5)


def test_pairing_removes_the_spread_between_prompts():
    """Prompts differ by a factor of ten, the variants by 20 %: unpaired, this would drown."""
    rng = np.random.default_rng(2)
    level = rng.uniform(0.01, 0.1, 30)
    base = dict(enumerate(level))
    other = dict(enumerate(level / 1.2 * rng.normal(1, 0.02, 30)))
    assert paired_speedup(base, other).relative_half_width < 0.02


@pytest.mark.parametrize("bad", [0.0, -0.1, math.nan, math.inf])
def test_a_time_that_is_none_is_refused(bad):
    with pytest.raises(CampaignError, match="not a positive finite number"):
        paired_speedup({"a": bad}, {"a": 0.1})


def test_one_prompt_gives_a_figure_without_an_interval():
    found = paired_speedup({"a": 0.04}, {"a": 0.02})
    assert (found.low, found.mid, found.high) == (0.0, 2.0, math.inf)
    assert json.dumps(found.as_dict(), allow_nan=False)
    assert found.as_dict()["high"] is None


def test_throughput_ratio_of_three_repeats():
    found = throughput_ratio([100.0, 102.0, 98.0], [150.0, 149.0, 151.0])
    assert found.mid == pytest.approx(1.5)
    assert 1.4 < found.low < 1.5 < found.high < 1.6
    assert found.n == 3


def test_throughput_ratio_of_single_runs_claims_nothing():
    found = throughput_ratio([100.0], [150.0, 151.0])
    assert not found.excludes(1.0)
    assert found.mid == pytest.approx(1.505)


def test_throughput_ratio_of_equal_repeats_is_exact():
    found = throughput_ratio([100.0, 100.0], [150.0, 150.0])
    assert found.low == found.mid == found.high == 1.5


@pytest.mark.parametrize("values", [[], [1.0, 0.0]])
def test_throughput_ratio_refuses_what_is_no_throughput(values):
    with pytest.raises(CampaignError):
        throughput_ratio(values, [1.0, 2.0])


@settings(max_examples=60)
@given(
    values=st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30),
    statistic=st.sampled_from(["mean", "median", "p90", "p99.9", "p0"]),
)
def test_a_bootstrap_interval_holds_its_figure(values, statistic):
    found = bootstrap_interval(values, statistic)
    assert found.low <= found.mid <= found.high
    assert found.n == len(values)


@pytest.mark.parametrize(("statistic", "share"), [("median", 0.5), ("p90", 0.9), ("p99.5", 0.995)])
def test_percentiles_are_those_of_the_sample(statistic, share):
    values = list(np.random.default_rng(3).exponential(size=500))
    assert bootstrap_interval(values, statistic).mid == pytest.approx(np.quantile(values, share))


@pytest.mark.parametrize("statistic", ["average", "p", "p101", "pxx", "p-1", "90"])
def test_an_unknown_statistic_is_refused(statistic):
    with pytest.raises(CampaignError, match="no statistic"):
        bootstrap_interval([1.0, 2.0], statistic)


@pytest.mark.parametrize("values", [[], [1.0, math.nan], [math.inf]])
def test_a_sample_without_finite_values_is_refused(values):
    with pytest.raises(CampaignError, match="no values"):
        bootstrap_interval(values)


def test_a_large_sample_is_resampled_in_blocks_of_bounded_memory():
    values = np.random.default_rng(4).normal(10, 1, 5_000)
    found = bootstrap_interval(values)
    assert found.relative_half_width == pytest.approx(1.96 / math.sqrt(5_000) / 10, rel=0.1)


def test_full_agreement_on_100_items_is_not_certainty():
    answers = {i: i % 3 > 0 for i in range(100)}
    found = paired_share_difference(answers, answers)
    assert found.mid == 0
    assert 0.01 < found.high < 0.03
    assert found.low == pytest.approx(-found.high)


def test_share_difference_has_the_sign_of_the_change():
    base = {i: i < 60 for i in range(100)}
    worse = {i: i < 40 for i in range(100)}
    found = paired_share_difference(base, worse)
    assert found.mid == pytest.approx(-0.2)
    assert found.excludes(0.0)
    assert paired_share_difference(worse, base).mid == pytest.approx(0.2)


@settings(max_examples=60)
@given(pairs=st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=50))
def test_share_difference_is_antisymmetric_and_within_bounds(pairs):
    base, other = ({i: p[side] for i, p in enumerate(pairs)} for side in (0, 1))
    there, back = paired_share_difference(base, other), paired_share_difference(other, base)
    assert -1 <= there.low <= there.mid <= there.high <= 1
    assert (there.low, there.high) == pytest.approx((-back.high, -back.low))


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (-0.02, 0.03, "equivalent"),
        (-0.2, -0.1, "lower"),
        (0.06, 0.09, "higher"),
        (-0.1, 0.01, "unclear"),
        (0.01, 0.06, "unclear"),
    ],
)
def test_equivalence(low, high, verdict):
    interval = Interval(low, (low + high) / 2, high, 50)
    assert equivalence(interval, 0.05) == verdict
    ratio = Interval(1 + low, 1 + (low + high) / 2, 1 + high, 50)
    assert equivalence(ratio, 0.05, around=1.0) == verdict


def test_stopping_early_needs_a_tight_interval_and_enough_prompts():
    assert tight_enough(Interval(0.98, 1.0, 1.02, 20), 0.021)
    assert not tight_enough(Interval(0.97, 1.0, 1.02, 20), 0.02)
    assert not tight_enough(Interval(1.0, 1.0, 1.0, 3), 0.02)
    assert not tight_enough(Interval(0.0, 1.0, math.inf, 20), 0.02)


def baseline(speed, *, seed, noise=0.01, prompts=40):
    rng = np.random.default_rng(9)
    level = rng.uniform(0.03, 0.05, prompts)
    return dict(enumerate(speed * level * np.random.default_rng(seed).normal(1, noise, prompts)))


def test_a_steady_machine_is_called_steady():
    report = drift([baseline(1, seed=1), baseline(1, seed=2), baseline(1, seed=3)])
    assert report.verdict == "steady"
    assert abs(report.relative_change) < 0.01


def test_a_machine_that_slows_down_is_caught_with_its_size_and_place():
    report = drift([baseline(1, seed=1), baseline(1.01, seed=2), baseline(1.1, seed=3)])
    assert report.verdict == "drifting"
    assert report.relative_change == pytest.approx(0.1, abs=0.01)
    assert (report.earlier, report.later) == (0, 2)
    assert report.largest.excludes(1.0)
    assert [round(i.mid, 1) for i in report.from_first] == [1.0, 1.0, 1.1]


def test_a_machine_that_speeds_up_drifts_too():
    assert drift([baseline(1.1, seed=1), baseline(1, seed=2)]).relative_change == pytest.approx(-0.09, abs=0.01)


def test_a_noisy_machine_is_unclear_rather_than_steady():
    cells = [baseline(1, seed=s, noise=0.3, prompts=8) for s in (1, 2, 3)]
    assert drift(cells).verdict == "unclear"


def test_a_dip_in_the_middle_is_caught():
    report = drift([baseline(1, seed=1), baseline(1.2, seed=2), baseline(1, seed=3)])
    assert report.verdict == "drifting"
    assert 1 in {report.earlier, report.later}


@pytest.mark.parametrize(
    ("speeds", "noise", "start"),
    [
        ((1, 1), 0.01, "The machine kept its speed within 3%"),
        ((1, 1.2), 0.01, "The machine's speed moved: baseline 2 of 2 was 2"),
        ((1, 1), 0.9, "Too noisy"),
    ],
)
def test_a_drift_report_says_in_a_sentence_what_it_found(speeds, noise, start):
    cells = [{k: abs(v) for k, v in baseline(s, seed=n, noise=noise, prompts=12).items()} for n, s in enumerate(speeds)]
    report = drift(cells)
    assert report.summary.startswith(start)
    assert report.drifted == (speeds[1] > 1)


def test_a_drift_report_is_json():
    report = drift([baseline(1, seed=1), baseline(1, seed=2)])
    assert json.loads(json.dumps(report.as_dict()))["verdict"] == report.verdict


@pytest.mark.parametrize("cells", [[], [{"a": 0.1}]])
def test_drift_of_one_cell_is_refused(cells):
    with pytest.raises(CampaignError, match="at least twice"):
        drift(cells)


def _two_repeats(second):
    """Twenty prompts in two repeats: 1.25 times as fast in the first, `second` times in the other."""
    noise = np.random.default_rng(3).normal(1, 0.01, 40)
    base = {(repeat, f"p{i}"): 0.02 for repeat in (0, 1) for i in range(20)}
    gain = {0: 1.25, 1: second}
    return base, {key: 0.02 / gain[key[0]] * noise[i] for i, key in enumerate(base)}


def test_repeats_that_disagree_widen_the_interval_to_what_they_differ_by():
    base, other = _two_repeats(0.8)
    blind, aware = paired_speedup(base, other), paired_speedup(base, other, repeat_of=lambda key: key[0])
    assert blind.relative_half_width < 0.08
    assert aware.mid == blind.mid
    assert aware.low < 0.8
    assert aware.high > 1.25


def test_repeats_that_agree_change_nothing():
    base, other = _two_repeats(1.25)
    blind, aware = paired_speedup(base, other), paired_speedup(base, other, repeat_of=lambda key: key[0])
    assert aware.relative_half_width == pytest.approx(blind.relative_half_width, rel=0.5)
    assert aware.low > 1.2


def test_one_repeat_has_no_variance_between_repeats():
    base, other = _two_repeats(0.8)
    one = {key: value for key, value in base.items() if key[0] == 0}
    assert paired_speedup(one, other, repeat_of=lambda key: key[0]) == paired_speedup(one, other)
