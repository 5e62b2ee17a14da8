"""Live figures from two scrapes, with values worked out by hand, and how they look."""

from __future__ import annotations

import io
import json
from pathlib import Path

import httpx
import pytest
from rich.console import Console
from typer.testing import CliRunner

from outrider.cli import app
from outrider.engine import EngineScrape, Histogram, SpecCounters
from outrider.errors import OutriderError
from outrider.observe.live import Live, live, quantile
from outrider.observe.watch import Watched
from outrider.observe.watch_view import curve, view
from outrider.runtime import discovery
from outrider.stack import find_stack

FIXTURES = Path(__file__).parents[2] / "fixtures" / "metrics"
WHO = ("s", "e", "http://127.0.0.1:8000")
BOUNDS = (0.01, 0.025, float("inf"))
IDLE = EngineScrape(
    generation_tokens=1000.0,
    prompt_tokens=500.0,
    first_tokens=10.0,
    preemptions=0.0,
    running=0.0,
    waiting=0.0,
    kv_cache_usage=0.1,
    start_time=1.0,
    spec=SpecCounters(0.0, 0.0, 0.0, (0.0, 0.0, 0.0)),
    tpot=Histogram(BOUNDS, (0.0, 10.0, 10.0), 0.2, 10.0),
)
# Ten seconds later: 1000 tokens of 10 requests in 400 steps, each with 3 drafts, 590 accepted; 20 ms a token.
BUSY = EngineScrape(
    generation_tokens=2000.0,
    prompt_tokens=900.0,
    first_tokens=20.0,
    preemptions=5.0,
    running=4.0,
    waiting=1.0,
    kv_cache_usage=0.4,
    start_time=1.0,
    spec=SpecCounters(400.0, 1200.0, 590.0, (300.0, 190.0, 100.0)),
    tpot=Histogram(BOUNDS, (0.0, 20.0, 20.0), 0.4, 20.0),
)


def over(before: EngineScrape, now: EngineScrape, **given: object) -> Live:
    where = {"mean_running": 4.0, "baseline_tpot_s": {"3-4": 0.032}} | given
    return live(WHO, before, now, 10.0, **where)  # type: ignore[arg-type]


def shown(*figures: Live, history: dict | None = None) -> str:
    console = Console(width=80, record=True, file=io.StringIO(), color_system=None)
    console.print(view(figures, history or {}))
    return console.export_text()


def test_a_busy_window() -> None:
    got = over(IDLE, BUSY)
    assert got.state == "busy"
    assert (got.tokens_s, got.preemptions_s, got.band) == (100.0, 0.5, "3-4")
    assert got.acceptance_length == pytest.approx(1 + 590 / 400)
    assert got.by_position == pytest.approx((0.75, 0.475, 0.25))
    assert got.by_position_conditional == pytest.approx((0.75, 19 / 30, 10 / 19))
    assert (got.waste_tokens_s, got.waste_share) == (61.0, pytest.approx(61 / 120))
    assert got.tokens_per_step == pytest.approx(990 / 400)
    assert got.tpot_mean_s == pytest.approx(0.02)
    assert (got.tpot_p50_s, got.tpot_p95_s) == pytest.approx((0.0175, 0.02425))
    assert got.speedup == pytest.approx(1.6)
    assert got.step_cost == pytest.approx(2.475 / 1.6)
    assert got.break_even == pytest.approx(2.475 / 1.6)
    assert got.verdict == "speculation pays: 1.60x"


def test_nothing_asked_is_no_traffic_and_no_figure_is_zero_because_of_it() -> None:
    got = over(IDLE, IDLE)
    assert (got.state, got.verdict) == ("no traffic", "no traffic")
    assert (got.acceptance_length, got.tokens_s, got.speedup, got.tpot_p50_s) == (None,) * 4


def test_a_restart_is_said_and_not_subtracted() -> None:
    later = EngineScrape(generation_tokens=5.0, start_time=2.0)
    assert over(BUSY, later).state == "restarted"
    # SGLang publishes no start time; counters that fall say the same.
    assert over(EngineScrape(generation_tokens=9.0), EngineScrape(generation_tokens=5.0)).state == "restarted"


@pytest.mark.parametrize(
    ("baseline", "words"),
    [
        ({}, "no baseline recorded for 3-4 users"),
        ({"3-4": 0.0202}, "even: 1.01x"),
        ({"3-4": 0.016}, "speculation loses: 0.80x"),
    ],
)
def test_the_verdict_is_in_words(baseline: dict[str, float], words: str) -> None:
    assert over(IDLE, BUSY, baseline_tpot_s=baseline).verdict == words


def test_a_window_with_fewer_drafts_than_steps_needs_more_acceptance() -> None:
    spec = SpecCounters(125.0, 375.0, 190.0)
    now = EngineScrape(
        generation_tokens=1700.0,
        first_tokens=20.0,
        running=1.0,
        start_time=1.0,
        spec=spec,
        tpot=Histogram(BOUNDS, (0.0, 20.0, 20.0), 0.4, 20.0),
    )
    got = over(IDLE, now, mean_running=1.0, baseline_tpot_s={"1": 0.024})
    # 690 tokens in 500 steps; cost 1.38 / 1.2; a quarter of the steps draft.
    assert got.break_even == pytest.approx(1 + (1.38 / 1.2 - 1) / 0.25)


def test_percentiles_interpolate_within_a_bucket_and_know_no_more_than_the_last_bound() -> None:
    histogram = Histogram((0.1, 0.2, float("inf")), (5.0, 9.0, 10.0), 1.5, 10.0)
    assert quantile(histogram, 0.5) == pytest.approx(0.1)
    assert quantile(histogram, 0.7) == pytest.approx(0.15)
    assert quantile(histogram, 0.99) == pytest.approx(0.2)
    assert quantile(Histogram((0.1,), (0.0,), 0.0, 0.0), 0.5) is None


def test_what_is_shown_fits_eighty_columns_and_says_the_verdict() -> None:
    text = shown(over(IDLE, BUSY), Live(*WHO, "no answer"), history={WHO[2]: (1.0, 1.3, 1.6)})
    assert max(map(len, text.splitlines())) <= 80
    for words in ("speculation pays: 1.60x", "breaks even at", "1.55", "2.48", "32.0 ms at 3-4", "no answer"):
        assert words in text, words
    assert "75%" in text
    [line] = [line for line in text.splitlines() if "TPOT mean" in line]
    assert "step cost" in line, "both halves stand side by side"
    assert "63%" in text


def test_a_curve_is_as_high_as_its_largest_value() -> None:
    assert curve((0.0, 0.5, 1.0)) == " ▄█"


def test_watching_nothing_says_what_to_do(own_dirs: Path) -> None:
    result = CliRunner().invoke(app, ["watch", "--once"])
    assert isinstance(result.exception, OutriderError)
    assert "outrider serve STACK VARIANT" in str(result.exception)
    assert CliRunner().invoke(app, ["watch", "--json", "-"]).exit_code == 2


def test_an_engine_that_is_found_by_its_target_is_named_and_recognised(
    own_dirs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = "http://127.0.0.1:8123"
    discovery.publish(discovery.engine_target(find_stack("smollm2-cpu"), "ngram", url))
    pages = iter([(FIXTURES / "sglang-0.5.23-eagle3.txt").read_text(), None])

    def get(address: str, timeout: float) -> httpx.Response:
        assert address == f"{url}/metrics"
        page = next(pages)
        if page is None:
            raise httpx.ConnectError("refused")
        return httpx.Response(200, text=page, request=httpx.Request("GET", address))

    monkeypatch.setattr("outrider.observe.watch.httpx.get", get)
    one = Watched(url)
    one.read(10.0)
    assert one.engine is not None
    assert one.engine.name == "sglang"
    seen = one.now()
    assert (seen.stack, seen.variant, seen.state) == ("smollm2-cpu", "ngram", "no traffic")
    one.read(10.0)
    assert one.now().state == "no answer"


def test_json_is_all_that_is_printed_when_it_goes_to_standard_output(
    own_dirs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (FIXTURES / "vllm-0.32.0-ngram.txt").read_text()
    request = httpx.Request("GET", "http://h/metrics")
    monkeypatch.setattr(
        "outrider.observe.watch.httpx.get", lambda *a, **k: httpx.Response(200, text=page, request=request)
    )
    result = CliRunner().invoke(app, ["watch", "http://127.0.0.1:1", "--once", "--window", "0.5", "--json", "-"])
    assert result.exit_code == 0, result.output
    [found] = json.loads(result.stdout)
    assert (found["state"], found["verdict"], found["variant"]) == ("no traffic", "no traffic", "?")
