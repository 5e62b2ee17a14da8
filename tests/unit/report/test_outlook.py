"""The outlook of the public cells: what it answers, and the page in a real headless Chromium."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from tests.unit.predict.made import PUBLIC, flagship

from outrider.campaign.stats import Interval
from outrider.decide.next_cell import expected_loss, worth_measuring
from outrider.predict.observations import read_observations
from outrider.report import write_report
from outrider.report.outlook import Outlook, outlook_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def outlook() -> Outlook:
    """Of the public cells, with one measured place taken away so that something is left to measure."""
    cells = read_observations(PUBLIC, flagship())
    missing = (16, 16384.0, 4)
    kept = [c for c in cells if (c.batch, c.context, c.context_ranks) != missing or not c.k]
    return outlook_of(flagship(), kept)


def test_every_question_of_the_owner_is_answered_with_a_source(outlook: Outlook) -> None:
    assert [a.question for a in outlook.answers] == [
        "Does n-gram pay?",
        "Does a drafter that exists pay?",
        "At which load is it off?",
        "What would training one take?",
        "What does MoE activation cost?",
        "Does k have to change with load?",
        "How far is the model to be trusted?",
        "What to measure next?",
    ]
    assert all(a.answer and a.detail and a.source for a in outlook.answers)


def test_answers_follow_the_cells(outlook: Outlook) -> None:
    told = {a.question: a for a in outlook.answers}
    assert told["Does n-gram pay?"].tone == "open"
    choices = [choice for row in outlook.rows for choice in row.choices]
    off = sum(not choice.best.k for choice in choices)
    assert told["At which load is it off?"].answer == f"At {off} of {len(choices)} places"
    assert "always: dcp 4" in told["At which load is it off?"].detail
    assert "GPU-hours" in told["What would training one take?"].detail
    # 8 experts for one token, 31 for four if routing were uniform; 384 in all.
    experts = told["What does MoE activation cost?"]
    assert "1 user: 8 to 2" in experts.detail
    assert "of 384 a layer" in experts.detail


def test_each_checked_place_was_left_out_of_the_fit_that_predicts_it(outlook: Outlook) -> None:
    pairs = [pair for pair, _ in outlook.checked]
    assert len(pairs) == len({id(p.speculative) for p in pairs}) == 51
    errors = [abs(p.speedup.mid / pair.speedup - 1) for pair, p in outlook.checked if p.speedup]
    assert 0 < sum(errors) / len(errors) < 0.10


def test_the_missing_place_is_what_to_measure(outlook: Outlook) -> None:
    first = outlook.next_cells[0].option
    assert (first.batch, first.context, first.k) == (16, 16384, 3)
    assert first.source == "fitted"
    assert outlook.next_cells[0].why.startswith("dcp 4")


def test_schedules_are_the_engine_s_json(outlook: Outlook) -> None:
    assert outlook.schedules()
    for text, places in outlook.schedules().items():
        bands = json.loads(text)["num_speculative_tokens_per_batch_size"]
        assert bands[0][0] == 1
        assert places


def test_doubt_near_parity_costs_more_than_doubt_far_away() -> None:
    near, far = Interval(0.8, 1.0, 1.25, 4), Interval(1.6, 2.0, 2.5, 4)
    assert expected_loss(near) == pytest.approx(0.0454, abs=0.002)
    assert expected_loss(far) < 1e-6
    assert expected_loss(Interval(1.1, 1.1, 1.1, 4)) == 0


def test_what_was_measured_is_not_proposed_again(outlook: Outlook) -> None:
    measured = [c for row in outlook.rows for c in row.choices if all(o.source == "measured" for o in c.options)]
    assert measured
    assert worth_measuring(measured) == []


@pytest.fixture(scope="module")
def browser(
    chromium: str, chromedriver: str, outlook: Outlook, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[webdriver.Chrome]:
    file: Path = tmp_path_factory.mktemp("outlook") / "report.html"
    write_report(file, stack=flagship(), cells=[], points=[], drift=None, outlook=outlook, title="public </script>")
    options = Options()
    options.binary_location = chromium
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--window-size=1280,1600"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(chromedriver))
    try:
        driver.get(file.as_uri())
        yield driver
    finally:
        driver.quit()


def ask(browser: webdriver.Chrome, script: str) -> Any:
    return browser.execute_script(f"return {script}")


@pytest.mark.browser
def test_the_first_screen_holds_the_answers(browser: webdriver.Chrome) -> None:
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []
    bottom = ask(browser, "document.getElementById('answers').getBoundingClientRect().bottom")
    assert bottom < 700
    assert len(ask(browser, "Array.from(document.querySelectorAll('#answers .answer')).map(e => e.textContent)")) == 8


@pytest.mark.browser
@pytest.mark.parametrize("chart", ["map", "checked", "break-even"])
def test_charts_are_drawn(browser: webdriver.Chrome, chart: str) -> None:
    assert ask(browser, f"document.querySelector('#chart-{chart} svg.main-svg') !== null")
    assert ask(browser, f"document.getElementById('chart-{chart}').data.length") > 0


@pytest.mark.browser
def test_the_map_is_coloured_by_the_winner(browser: webdriver.Chrome, outlook: Outlook) -> None:
    grid = ask(browser, "document.getElementById('chart-map').data[0].z")
    text = ask(browser, "document.getElementById('chart-map').data[0].text")
    for row, line, words in zip(outlook.rows, grid, text, strict=True):
        drawn = [(z > 0, word) for z, word in zip(line, words, strict=True) if z is not None]
        assert [won for won, _ in drawn] == [choice.best.k > 0 for choice in row.choices]
        assert all(("plain" in word) != won for won, word in drawn)


@pytest.mark.browser
def test_every_option_has_a_row_with_its_source(browser: webdriver.Chrome, outlook: Outlook) -> None:
    rows = ask(
        browser, "Array.from(document.querySelectorAll('#surface tbody tr')).map(r => r.lastElementChild.textContent)"
    )
    assert len(rows) == len(outlook.options)
    assert {row.split(",")[0] for row in rows} == {"measured", "fitted"}


@pytest.mark.browser
def test_the_page_fits_its_window(browser: webdriver.Chrome) -> None:
    assert ask(browser, "document.documentElement.scrollWidth <= window.innerWidth") is True
