"""Verified, refused or undecided: what a campaign that served a schedule says about it, and who carries the answer."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import polars as pl
import pytest
from tests.unit.campaign.made import cell, rows
from typer.testing import CliRunner

from outrider.campaign.compare import compare, ratio_of
from outrider.campaign.stats import Interval
from outrider.cli import app
from outrider.decide.errors import DecideError
from outrider.decide.overlay import overlay_text, write_overlay
from outrider.decide.probe import Probe, ProbeLoad, judge_probe, marked, read_probe, recommended
from outrider.stack import find_stack, load_stack

if TYPE_CHECKING:
    from pathlib import Path

    from outrider.stack import Stack

BANDS = ((1, 16, 3), (17, 32, 0))


@pytest.fixture
def overlay(tmp_path: Path) -> Path:

    text = overlay_text(
        find_stack("smollm2-cpu"), "tuned", {"dynamic": ("eagle3", BANDS, "made")}, ["why", "Recommended: no"]
    )
    return write_overlay(tmp_path / "tuned.yaml", text)


def probed(stack: Stack, speeds: dict[tuple[str, int], float]) -> Probe:
    """Judge a campaign in which each variant and load has a TPOT of 1/speed."""
    cells = [cell(v, "chat", c, tpot_s=1 / s, al=None if v == "baseline" else 1.5) for (v, c), s in speeds.items()]
    requests = pl.concat([rows(v, "chat", c, 1 / s) for (v, c), s in speeds.items()])
    points = compare(cells, requests)
    return judge_probe(stack, points, lambda a, b: ratio_of(requests, a, b), "run")[0]


def test_a_schedule_within_three_percent_of_the_best_static_is_verified(overlay: Path) -> None:
    speeds = {("baseline", 1): 10.0, ("eagle3", 1): 15.0, ("dynamic", 1): 14.8, ("baseline", 32): 5.0,
              ("eagle3", 32): 4.0, ("dynamic", 32): 4.9}  # fmt: skip
    probe = probed(load_stack(overlay), speeds)
    assert [(x.batch, x.k, x.against) for x in probe.loads] == [(1, 3, "eagle3"), (32, 0, "baseline")]
    assert probe.verdict == "verified"
    assert recommended("eagle3", BANDS, [probe])[0] is True


def test_a_schedule_that_collapses_at_one_load_is_refused(overlay: Path) -> None:
    speeds = {("baseline", 1): 10.0, ("eagle3", 1): 15.0, ("dynamic", 1): 15.0, ("baseline", 32): 5.0,
              ("eagle3", 32): 4.0, ("dynamic", 32): 3.0}  # fmt: skip
    probe = probed(load_stack(overlay), speeds)
    assert probe.verdict == "refused"
    assert "0.60x of baseline" in probe.why
    assert recommended("eagle3", BANDS, [probe])[0] is False


def load(low: float, mid: float, high: float) -> ProbeLoad:
    return ProbeLoad("chat", 4, 3, "eagle3", Interval(low, mid, high, 8))


def test_noise_that_reaches_the_tolerance_leaves_it_undecided() -> None:
    assert Probe("dynamic", "eagle3", BANDS, "run", (load(0.9, 0.95, 1.0),)).verdict == "undecided"
    assert (
        Probe("dynamic", "eagle3", BANDS, "run", (load(0.98, 1.0, 1.02), load(0.9, 0.95, 1.0))).verdict == "undecided"
    )
    assert Probe("dynamic", "eagle3", BANDS, "run", ()).verdict == "undecided"


def test_a_schedule_is_never_recommended_before_it_was_probed_itself() -> None:
    good, why = recommended("eagle3", BANDS, [])
    assert not good
    assert "outrider probe" in why
    other = Probe("dynamic", "eagle3", ((1, 32, 2),), "run", (load(1.0, 1.1, 1.2),))
    assert other.verdict == "verified"
    assert recommended("eagle3", BANDS, [other])[0] is False
    assert recommended("ngram", other.bands, [other])[0] is False
    assert recommended("eagle3", other.bands, [other])[0] is True


def test_the_overlay_carries_the_verdict_and_stays_the_same_stack(overlay: Path) -> None:
    before = load_stack(overlay).digest()
    probe = Probe("dynamic", "eagle3", BANDS, "first", (load(0.5, 0.6, 0.7),))
    text = marked(overlay.read_text(encoding="utf-8"), [probe])
    assert "# Probe of dynamic (run first): refused" in text
    assert "Recommended" not in text
    assert text.startswith("# why\n")
    again = marked(text, [Probe("dynamic", "eagle3", BANDS, "second", (load(0.99, 1.0, 1.01),))])
    assert "run first" not in again
    assert "run second): verified" in again
    overlay.write_text(again, encoding="utf-8")
    assert load_stack(overlay).digest() == before


def test_a_result_is_read_back_as_it_was(tmp_path: Path) -> None:
    probe = Probe("dynamic", "eagle3", BANDS, "run", (load(0.98, 1.0, 1.02),))
    file = tmp_path / "probe.json"
    file.write_text(json.dumps({"probes": [probe.as_dict()]}), encoding="utf-8")
    assert read_probe(file) == [probe]
    file.write_text('{"probes": [{}]}', encoding="utf-8")
    with pytest.raises(DecideError, match="no result of a probe"):
        read_probe(file)


def test_a_stack_without_a_schedule_has_nothing_to_probe() -> None:
    result = CliRunner().invoke(app, ["probe", "smollm2-cpu"])
    assert result.exit_code == 1
    assert "no schedule to probe" in str(result.exception)
