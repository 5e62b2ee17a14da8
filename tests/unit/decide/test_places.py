from __future__ import annotations

import math

import pytest
from tests.unit.predict.made import PUBLIC, flagship

from outrider.campaign.stats import Interval
from outrider.decide.errors import DecideError
from outrider.decide.options import Option, options_of
from outrider.decide.places import bands_of, capacity, choose_place, commonest_band
from outrider.decide.slo import Slo
from outrider.predict.observations import Observation, read_observations
from outrider.predict.session import open_session
from outrider.predict.surface import Wanted

BAND = bands_of([1024.0])[0]


def option(
    variant: str, tpot_ms: float, speedup: tuple[float, float, float] | None, *, batch: int = 4, **latency: float
) -> Option:
    tpot = tpot_ms / 1000
    rate = batch / tpot
    return Option(
        variant=variant,
        k=3 if speedup else 0,
        batch=batch,
        context=1024.0,
        tpot_s=Interval(tpot * 0.9, tpot, tpot * 1.1, 4),
        throughput_tok_s=Interval(rate * 0.9, rate, rate * 1.1, 4),
        tokens_per_step=2.0 if speedup else 1.0,
        speedup=Interval(*speedup, 4) if speedup else None,
        break_even=Interval(1.5, 1.8, 2.1, 4) if speedup else None,
        source="measured",
        latency=latency,
    )


PLAIN = option("baseline", 20, None)


def test_the_fastest_certain_gain_wins() -> None:
    choice = choose_place(BAND, 4, [PLAIN, option("a", 15, (1.1, 1.33, 1.5)), option("b", 12, (0.9, 1.6, 2.2))], Slo())
    assert choice.best.variant == "a"
    assert "1.33x" in choice.why
    assert [o.variant for o in choice.losing] == ["b"]


def test_baseline_wins_ties_and_says_what_the_nearest_would_need() -> None:
    choice = choose_place(BAND, 4, [PLAIN, option("a", 19, (0.95, 1.05, 1.15))], Slo())
    assert choice.best.variant == "baseline"
    assert "not distinguishable" in choice.why
    assert "needs 1.80 tokens a step, gets 2.00" in choice.why


def test_a_loss_beyond_doubt_is_called_one() -> None:
    choice = choose_place(BAND, 4, [PLAIN, option("a", 25, (0.7, 0.8, 0.9))], Slo())
    assert "loses" in choice.why


def test_limits_are_judged_by_measured_tails_where_there_are_some() -> None:
    slo = Slo(percentile=95, max_tpot_s=0.025)
    assert slo.judge(option("a", 20, None)) == "misses"
    assert slo.judge(option("a", 20, None, tpot_mean=0.02, tpot_p95=0.021)) == "meets"
    assert slo.judge(option("a", 20, None, tpot_mean=0.02, tpot_p95=0.024)) == "at risk"


def test_a_limit_on_ttft_is_not_known_where_it_was_not_measured() -> None:
    slo = Slo(percentile=50, max_ttft_s=0.5)
    assert slo.judge(PLAIN) == "not known"
    assert slo.judge(option("a", 20, None, ttft_p50=0.4)) == "meets"
    assert slo.judge(option("a", 20, None, ttft_p50=0.6)) == "misses"


def test_a_likely_gain_is_enough_where_plain_decoding_misses_the_limit() -> None:
    choice = choose_place(BAND, 4, [PLAIN, option("a", 15, (0.95, 1.33, 1.6))], Slo(max_tpot_s=0.018))
    assert choice.best.variant == "a"


def test_where_nothing_keeps_the_limit_it_is_said() -> None:
    choice = choose_place(BAND, 4, [PLAIN, option("a", 15, (1.1, 1.33, 1.5))], Slo(max_tpot_s=0.001))
    assert (choice.best.variant, choice.slo) == ("a", "misses")


def test_throughput_is_greatest_at_the_largest_load_that_keeps_the_limit() -> None:
    slo = Slo(objective="throughput", max_tpot_s=0.03)
    choices = [
        choose_place(BAND, batch, [option("baseline", tpot, None, batch=batch)], slo)
        for batch, tpot in ((4, 10), (16, 20), (64, 40))
    ]
    assert capacity(choices)[BAND].batch == 16


def test_nonsense_limits_are_refused() -> None:
    with pytest.raises(DecideError, match="percentile 42"):
        Slo(percentile=42)
    with pytest.raises(DecideError, match="above 0"):
        Slo(max_tpot_s=0)


def test_a_place_without_baseline_is_no_place() -> None:
    with pytest.raises(DecideError, match="baseline"):
        choose_place(BAND, 4, [option("a", 15, (1.1, 1.3, 1.5))], Slo())


def test_bands_meet_without_gap_and_reach_everywhere() -> None:
    bands = bands_of([65536.0, 512.0, 16384.0])
    assert [b.context for b in bands] == [512, 16384, 65536]
    assert bands[0].low == 0
    assert math.isinf(bands[-1].high)
    assert [a.high for a in bands[:-1]] == [b.low for b in bands[1:]]
    with pytest.raises(DecideError):
        bands_of([])


def test_the_commonest_band_is_where_most_sequences_ran() -> None:
    bands = bands_of([512.0, 16384.0])
    cells = [Observation("", "baseline", "", 0, batch, length, 1, 1.0, 1.0)
             for batch, length in ((4, 500.0), (4, 700.0), (32, 20000.0))]  # fmt: skip
    assert commonest_band(bands, cells) == bands[1]
    assert commonest_band(bands, []) == bands[0]


def test_measured_places_show_what_was_measured_and_others_the_model() -> None:
    cells = read_observations(PUBLIC, flagship())
    session = open_session(flagship(), cells, draws=8)
    places = [Wanted(name, k, batch, 16384.0, 1) for batch in (8, 48) for name, k in (("baseline", 0), ("eagle3", 3))]
    plain, fast, _, other = options_of(session, places, cells)
    assert fast.source == "measured"
    assert fast.speedup is not None
    assert fast.speedup.mid == pytest.approx(351.7 / 298.9)
    assert plain.throughput_tok_s.mid == pytest.approx(298.9)
    assert fast.break_even is not None
    assert fast.break_even.mid == pytest.approx(2.06 / (351.7 / 298.9))
    assert other.source == "fitted"
