from __future__ import annotations

import pytest

from outrider.engine.base import SpecCounters
from outrider.train.card import render_card
from outrider.train.errors import TrainError
from outrider.train.served import acceptance

REPORT = {
    "k": 3,
    "max_tokens": 128,
    "head": {"parameters": 9.8e6, "bytes": 19_735_928},
    "offline": {"conditional": [0.62, 0.58, 0.55], "coverage": 0.981, "expected_length": 2.18},
    "served": {
        "chat": {"requests": 107, "length": 2.11, "per_position": [0.60, 0.33, 0.18]},
        "code": {"requests": 12, "length": 2.4, "per_position": [0.7, 0.42]},
        "all": {"requests": 119, "length": 2.14, "per_position": [0.61, 0.34, 0.19]},
    },
}
FACTS = {
    "regenerate": {
        "counts": {"train": {"conversations": 990, "rows": 1040, "answer_tokens": 210_000, "failed": 10,
                             "by_category": {"chat": 600, "code": 390}}},
        "seconds": 95.0,
        "versions": {},
    },
    "fit": {"counts": {}, "seconds": 400.0, "versions": {"speculators": "0.9.0", "torch": "2.11.0"}},
}  # fmt: skip
RECIPE = {
    "draft_vocab_size": 8192, "aux_layers": (2, 15, 27), "epochs": 12, "lr": 0.001, "seq_len": 1024, "pack": 8,
    "seed": 0, "max_tokens": 384, "temperatures": {"0.0": 0.6, "0.8": 0.4},
}  # fmt: skip


@pytest.fixture(scope="module")
def card() -> str:
    return render_card(
        name="tiny-eagle3", target="org/tiny", license_="Apache-2.0", stack="tiny-cpu", recipe=RECIPE, report=REPORT,
        facts=FACTS,
    )  # fmt: skip


def test_acceptance_stands_by_category_and_position_with_the_total_last(card: str) -> None:
    rows = [line for line in card.splitlines() if line.startswith("| ") and "category" not in line]
    assert [row.split(" | ")[0] for row in rows] == ["| chat", "| code", "| all"]
    assert "| chat | 107 | 2.11 | 0.60 | 0.33 | 0.18 |" in card


def test_a_position_that_was_never_reached_is_zero_not_missing(card: str) -> None:
    assert "| code | 12 | 2.40 | 0.70 | 0.42 | 0.00 |" in card


def test_data_recipe_versions_and_limits_are_told(card: str) -> None:
    for needed in ("210000 answer tokens", "10 conversations came back empty", "0.0 for 60%", "[2, 15, 27]",
                   "speculators 0.9.0", "98.1%", "19.7 MB", "## Limits", "outrider train run tiny-cpu"):  # fmt: skip
        assert needed in card


def test_acceptance_comes_from_counter_differences() -> None:
    found = acceptance(SpecCounters(100, 300, 150, (80, 50, 20)), 7)
    assert found.length == 2.5
    assert found.per_position == (0.8, 0.5, 0.2)
    assert found.conditional == pytest.approx((0.8, 0.625, 0.4))


def test_a_head_that_drafted_nothing_is_an_error_not_a_division_by_zero() -> None:
    with pytest.raises(TrainError, match="drafted nothing"):
        acceptance(SpecCounters(0, 0, 0, (0, 0, 0)), 7)
