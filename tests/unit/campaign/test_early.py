"""Repeats end where a place is known well enough, for all variants or none."""

from __future__ import annotations

import polars as pl
from tests.unit.campaign.made import cell, rows

from outrider.campaign.cell import CellKey
from outrider.campaign.compare import Point, compare
from outrider.campaign.early import settled

KEY = CellKey(variant="ngram", workload="edit", concurrency=1, repeat=1)
BOTH = ("baseline", "ngram")


def points(*, noisy: bool = False) -> list[Point]:
    other = rows("ngram", "edit", 1, 0.02)
    if noisy:
        other = other.with_columns(tpot_s=pl.col("tpot_s") * pl.Series([0.4, 1.6] * 4))
    return compare([cell("baseline"), cell("ngram", al=1.5)], pl.concat([rows("baseline", "edit", 1, 0.03), other]))


def test_tight_intervals_settle_a_place() -> None:
    assert settled(KEY, points(), BOTH, 0.05)


def test_a_finer_precision_does_not() -> None:
    assert not settled(KEY, points(), BOTH, 0.001)


def test_one_noisy_variant_keeps_its_place_open_for_all() -> None:
    assert not settled(KEY, points(noisy=True), BOTH, 0.05)


def test_a_variant_that_was_not_measured_keeps_it_open() -> None:
    assert not settled(KEY, points(), (*BOTH, "eagle3"), 0.05)


def test_another_place_is_another_matter() -> None:
    assert not settled(KEY.model_copy(update={"concurrency": 4}), points(), BOTH, 0.05)
