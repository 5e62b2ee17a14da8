"""The report in a real headless Chromium: it renders, without errors, without a network, with data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from tests.unit.campaign.made import cell, provenance, rows

from outrider.campaign.compare import compare
from outrider.campaign.stats import Interval, drift
from outrider.decide.adaptive import Verdict
from outrider.decide.probe import Probe, ProbeLoad
from outrider.load.result import Finding
from outrider.report import Judged, write_report
from outrider.stack import find_stack

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CHARTS = ["speedup", "tpot", "throughput", "acceptance"]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report over two workloads, two loads, one finding and one failed cell."""
    doubt = (Finding(code="not_steady", severity="flagged", evidence="TPOT <b>moved</b> </script>", fix="again"),)
    cells, requests = [], []
    for workload, gain in (("edit", 1.6), ("chat", 0.95)):
        for concurrency in (1, 4):
            base = 0.02 * concurrency**0.3
            cells.append(cell("baseline", workload, concurrency, tpot_s=base))
            cells.append(cell("ngram", workload, concurrency, tpot_s=base / gain, al=1.7, findings=doubt))
            requests += [
                rows("baseline", workload, concurrency, base),
                rows("ngram", workload, concurrency, base / gain),
            ]
    cells.append(cell("eagle3", "edit", 1, error="the engine died\n  seen: <out of memory>"))
    points = compare(cells, pl.concat(requests))
    moved = drift([{"a": 0.02, "b": 0.03}, {"a": 0.021, "b": 0.031}])
    file = tmp_path_factory.mktemp("report") / "report.html"
    behind = ProbeLoad("chat", 6, 3, "baseline", Interval(0.39, 0.45, 0.54, 36))
    likely = Verdict("edit", 1, "ngram", False, {"ngram": Interval(1.3, 1.7, 2.3, 1)}, ())
    judged = Judged((Probe("dynamic", "eagle3", ((1, 32, 3),), "first", (behind,)),), (likely,))
    return write_report(file, stack=find_stack("smollm2-cpu"), cells=cells, points=points, drift=moved, judged=judged)


def test_a_run_of_which_no_engine_started_has_a_report_that_says_so(tmp_path: Path) -> None:
    """What an engine chose is known from its log, so a cell whose engine never started says nothing of it."""
    bare = provenance(engine={"name": "vllm", "pinned": "0.32.0", "build": "cpu"}, argv=(), env={})
    cells = [
        cell(variant, "edit", 1, error="out of memory").model_copy(update={"provenance": bare})
        for variant in ("baseline", "ngram")
    ]
    points = compare(cells, rows("baseline", "edit", 1, 0.02).clear())
    file = write_report(
        tmp_path / "report.html", stack=find_stack("smollm2-cpu"), cells=cells, points=points, drift=None
    )
    text = file.read_text(encoding="utf-8")
    assert "nothing: it did not start" in text
    assert "out of memory" in text


@pytest.fixture(scope="module")
def browser(chromium: str, chromedriver: str, page: Path) -> Iterator[webdriver.Chrome]:
    options = Options()
    options.binary_location = chromium
    for flag in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--window-size=1280,1600",
    ):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(chromedriver))
    try:
        driver.get(page.as_uri())
        yield driver
    finally:
        driver.quit()


pytestmark = pytest.mark.browser


def ask(browser: webdriver.Chrome, script: str) -> Any:
    return browser.execute_script(f"return {script}")


def test_no_console_errors(browser: webdriver.Chrome) -> None:
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []


def test_nothing_is_fetched(browser: webdriver.Chrome) -> None:
    names = ask(browser, "performance.getEntriesByType('resource').map(e => e.name)")
    assert [name for name in names if not name.startswith("data:")] == []


@pytest.mark.parametrize("chart", CHARTS)
def test_chart_is_drawn_and_has_data(browser: webdriver.Chrome, chart: str) -> None:
    traces = ask(browser, f"document.getElementById('chart-{chart}').data.map(t => [t.name, Array.from(t.y)])")
    assert traces
    assert all(len(y) > 0 and all(value is not None for value in y) for _, y in traces)
    drawn = ask(browser, f"document.querySelectorAll('#chart-{chart} .points path, #chart-{chart} .point path').length")
    assert drawn >= len(traces)


def test_speedup_chart_shows_what_was_made(browser: webdriver.Chrome) -> None:
    values = ask(browser, "Array.from(document.getElementById('chart-speedup').data[0].y)")
    assert values == pytest.approx([1.6, 1.6])


def test_choices_name_the_winner_of_each_place(browser: webdriver.Chrome) -> None:
    cards = ask(browser, "Array.from(document.querySelectorAll('#choices .use')).map(e => e.textContent)")
    assert cards == ["ngram", "ngram", "baseline", "baseline"]


def test_every_point_has_a_row_and_failures_are_told(browser: webdriver.Chrome) -> None:
    assert ask(browser, "document.querySelectorAll('#points tbody tr').length") == 9
    assert "<out of memory>" in ask(browser, "document.body.innerText")


def test_text_from_outside_is_escaped(browser: webdriver.Chrome) -> None:
    assert ask(browser, "Array.from(document.querySelectorAll('b')).some(e => e.textContent === 'moved')") is False
    assert "TPOT <b>moved</b> </script>" in ask(browser, "document.body.innerText")


def test_a_refused_schedule_is_shown_with_its_figures(browser: webdriver.Chrome) -> None:
    text = ask(browser, "document.getElementById('probe-dynamic').innerText")
    assert "dynamic: refused" in text
    assert "[[1, 32, 3]]" in text
    assert "0.39\u20130.54" in text


def test_what_an_adaptive_campaign_left_out_is_told(browser: webdriver.Chrome) -> None:
    row = ask(browser, "document.querySelector('#expected tbody tr').innerText")
    assert "likely" in row
    assert "ngram 1.70x (1.30\u20132.30), not measured here" in row


def test_page_fits_its_window(browser: webdriver.Chrome) -> None:
    assert ask(browser, "document.documentElement.scrollWidth <= window.innerWidth") is True
