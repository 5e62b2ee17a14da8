"""Points, choices and drift from cells with known figures."""

from __future__ import annotations

import polars as pl
import pytest
from tests.unit.campaign.made import cell, rows

from outrider.campaign.commands import drift_of
from outrider.campaign.compare import compare
from outrider.campaign.view import choices_text, findings_text
from outrider.decide import choose
from outrider.load.result import Finding


def test_speedup_is_the_ratio_on_the_same_prompts() -> None:
    cells = [cell("baseline", tpot_s=0.03), cell("ngram", tpot_s=0.02, al=1.5)]
    requests = pl.concat([rows("baseline", "edit", 1, 0.03), rows("ngram", "edit", 1, 0.02)])
    base, ngram = compare(cells, requests)
    assert base.speedup is None
    assert ngram.speedup is not None
    assert ngram.speedup.mid == pytest.approx(1.5)
    assert ngram.speedup.n == 8
    # Every prompt gains the same, so there is nothing to doubt.
    assert ngram.speedup.high - ngram.speedup.low < 0.01
    assert ngram.tokens_per_step == pytest.approx(156 / 106)
    assert ngram.step_cost_ratio == pytest.approx(156 / 106 / 1.5)


def test_only_measured_requests_that_ended_well_count() -> None:
    cells = [cell("baseline"), cell("ngram", al=1.5)]
    noise = rows("ngram", "edit", 1, 9.0)
    requests = pl.concat(
        [
            rows("baseline", "edit", 1, 0.03),
            rows("ngram", "edit", 1, 0.02),
            noise.with_columns(phase=pl.lit("warmup")),
            noise.with_columns(outcome=pl.lit("reset")),
        ]
    )
    assert compare(cells, requests)[1].tpot_s.mid == pytest.approx(0.02)  # type: ignore[union-attr]


def test_repeats_are_pooled_and_paired_within_their_repeat() -> None:
    cells = [cell(v, repeat=r, al=None if v == "baseline" else 1.5) for r in (0, 1) for v in ("baseline", "ngram")]
    requests = pl.concat(
        [rows(v, "edit", 1, t * (1 + r), repeat=r) for r in (0, 1) for v, t in (("baseline", 0.03), ("ngram", 0.02))]
    )
    point = compare(cells, requests)[1]
    assert point.cells == 2
    assert point.speedup is not None
    assert (point.speedup.n, point.speedup.mid) == (16, pytest.approx(1.5))


def test_a_failed_cell_is_a_point_without_figures() -> None:
    base, eagle3 = compare([cell("baseline"), cell("eagle3", error="died")], rows("baseline", "edit", 1, 0.03))
    assert base.usable
    assert not eagle3.usable
    assert (eagle3.status, eagle3.errors, eagle3.tpot_s) == ("failed", ("died",), None)


def test_the_fastest_variant_beyond_doubt_is_chosen() -> None:
    cells = [cell("baseline"), cell("ngram", al=1.2), cell("eagle3", al=2.0)]
    requests = pl.concat(
        [rows("baseline", "edit", 1, 0.03), rows("ngram", "edit", 1, 0.028), rows("eagle3", "edit", 1, 0.02)]
    )
    (choice,) = choose(compare(cells, requests))
    assert choice.variant == "eagle3"
    assert "1.50x" in choice.why


def test_baseline_wins_ties() -> None:
    cells = [cell("baseline"), cell("ngram", al=1.2)]
    other = rows("ngram", "edit", 1, 0.03).with_columns(tpot_s=pl.col("tpot_s").reverse() * 0.995)
    (choice,) = choose(compare(cells, pl.concat([rows("baseline", "edit", 1, 0.03), other])))
    assert choice.variant == "baseline"
    assert "is not distinguishable" in choice.why


def test_a_losing_variant_is_named_with_its_loss() -> None:
    cells = [cell("baseline"), cell("ngram", al=1.2)]
    requests = pl.concat([rows("baseline", "edit", 1, 0.03), rows("ngram", "edit", 1, 0.04)])
    (choice,) = choose(compare(cells, requests))
    assert (choice.variant, choice.why.split(":")[0]) == ("baseline", "ngram loses")


def test_without_a_usable_baseline_nothing_is_chosen() -> None:
    cells = [cell("baseline", error="died"), cell("ngram", al=1.2)]
    (choice,) = choose(compare(cells, rows("ngram", "edit", 1, 0.03)))
    assert choice.variant is None
    assert "undecided" in choices_text([choice])


def test_findings_are_told_once_with_their_evidence() -> None:
    doubt = Finding(code="preemptions", severity="flagged", evidence="3 requests")
    label = Finding(code="prompts_repeat", severity="info", evidence="twice")
    cells = [cell(repeat=r, findings=(doubt, label)) for r in (0, 1)]
    text = findings_text(compare(cells, rows("baseline", "edit", 1, 0.03)))
    assert text.count("preemptions") == 1
    assert "3 requests" in text
    assert "prompts_repeat" not in text


def test_drift_compares_the_same_places_over_time() -> None:
    steady = [cell(repeat=r, concurrency=c, tpot_s=0.02 * c) for r in (0, 1) for c in (1, 4)]
    slower = [cell(repeat=1, concurrency=c, tpot_s=0.03 * c) for c in (1, 4)]
    assert drift_of(steady[:2]) is None
    same, moved = drift_of(steady), drift_of(steady[:2] + slower)
    assert same is not None
    assert moved is not None
    assert same.relative_change == pytest.approx(0)
    assert moved.relative_change == pytest.approx(0.5)
    assert moved.drifted
