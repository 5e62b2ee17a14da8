"""A budgeted variant's speed and what is known of its answers belong together, and only proven ones are recommended."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from tests.unit.campaign.made import cell, rows

from outrider.campaign.compare import compare
from outrider.campaign.quality import NOT_MEASURED, quality_of, unproven
from outrider.campaign.view import quality_lines
from outrider.decide import choose
from outrider.errors import CampaignError
from outrider.report import Judged, write_report
from outrider.stack import ExpertBudget, find_stack

if TYPE_CHECKING:
    from pathlib import Path

    from outrider.campaign.compare import Point
    from outrider.stack import Stack


@pytest.fixture
def stack() -> Stack:
    shipped = find_stack("kimi-shape8-h200")
    budget = shipped.variants["baseline"].model_copy(update={"expert_budget": ExpertBudget(experts=64)})
    return shipped.model_copy(update={"variants": shipped.variants | {"budget64": budget}, "allow_lossy": True})


@pytest.fixture
def points() -> list[Point]:
    """The budgeted variant is far ahead, another one a little."""
    speeds = {"baseline": 0.03, "budget64": 0.01, "eagle3": 0.02}
    cells = [cell(name, "chat", 1, tpot_s=tpot_s) for name, tpot_s in speeds.items()]
    return compare(cells, pl.concat([rows(name, "chat", 1, tpot_s) for name, tpot_s in speeds.items()]))


def parity(**changes: Any) -> str:
    share = {"low": 0.6, "mid": 0.7, "high": 0.8, "n": 40, "dropped": 0, "confidence": 0.95}
    agreement = {
        "unit": "tokens",
        "share": share,
        "identical": 0.3,
        "median_prefix": 20.0,
        "by_category": {},
        "prompts": 40,
    }
    nothing = share | {"low": -0.01, "mid": 0.0, "high": 0.01}
    accuracy = {"a": 0.8, "b": 0.8, "difference": nothing, "gained": [], "lost": [], "by_kind": {}, "tasks": 60}
    result = {
        "schema": 1, "a": "baseline", "b": "budget64", "model": "kimi-shape-8", "plan": {}, "agreement": agreement,
        "noise_floor": None, "agreement_loss": None, "accuracy": accuracy, "verdict": "equivalent", "failures": [],
    }  # fmt: skip
    return json.dumps(result | changes)


def test_without_parity_the_quality_is_not_measured_and_the_variant_never_recommended(
    stack: Stack, points: list[Point], tmp_path: Path
) -> None:
    quality = quality_of(stack, tmp_path)
    assert quality["budget64"].text == NOT_MEASURED
    assert choose(points)[0].variant == "budget64", "it is the fastest"
    assert choose(points, unproven(quality))[0].variant == "eagle3"
    (line,) = quality_lines(stack, quality, points)
    assert "at most 64 experts a layer" in line
    assert f"outrider parity {stack.name} baseline budget64 --json {tmp_path}/parity-budget64.json" in line


@pytest.mark.parametrize(
    ("verdict", "recommended"),
    [("equivalent", True), ("higher", True), ("lower", False), ("unclear", False)],
)
def test_only_a_variant_whose_accuracy_stayed_is_recommended(
    stack: Stack, points: list[Point], tmp_path: Path, verdict: str, recommended: bool
) -> None:
    (tmp_path / "parity-budget64.json").write_text(parity(verdict=verdict, model=stack.target.served_name))
    quality = quality_of(stack, tmp_path)
    assert quality["budget64"].text.endswith(f"-1.0% to +1.0% against baseline: {verdict}")
    assert (choose(points, unproven(quality))[0].variant == "budget64") is recommended


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{}", "no result of outrider parity"),
        ("not json", "no result of outrider parity"),
        (parity(b="eagle3"), "does not hold budget64"),
        (parity(a="budget64"), "does not hold budget64"),
        (parity(model="another"), "does not hold budget64"),
    ],
)
def test_a_file_that_holds_something_else_is_refused_with_the_command_that_makes_it(
    stack: Stack, tmp_path: Path, text: str, says: str
) -> None:
    (tmp_path / "parity-budget64.json").write_text(text)
    with pytest.raises(CampaignError, match=says) as caught:
        quality_of(stack, tmp_path)
    assert "outrider parity" in str(caught.value.next_step)


@pytest.mark.parametrize("measured", [False, True])
def test_the_page_shows_the_quality_beside_the_speed(
    stack: Stack, points: list[Point], tmp_path: Path, measured: bool
) -> None:
    if measured:
        (tmp_path / "parity-budget64.json").write_text(parity(model=stack.target.served_name))
    judged = Judged(quality=quality_of(stack, tmp_path))
    page = write_report(tmp_path / "r.html", stack=stack, cells=[], points=points, drift=None, judged=judged)
    text = page.read_text(encoding="utf-8")
    row = next(part for part in text.split("<tr") if "</span>budget64" in part and "3.00x" in part)
    assert "lossy</b>" in row
    assert ("quality not measured" in row) is not measured
    assert ("agree over 70%" in row) is measured


def test_a_stack_without_budgets_has_no_such_column(points: list[Point], tmp_path: Path) -> None:
    stack = find_stack("smollm2-cpu")
    assert quality_of(stack, tmp_path) == {}
    page = write_report(
        tmp_path / "r.html", stack=stack, cells=[], points=points, drift=None, judged=Judged(quality={})
    )
    assert "Lossy variants" not in page.read_text(encoding="utf-8")
