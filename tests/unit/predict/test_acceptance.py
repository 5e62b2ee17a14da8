from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.predict.acceptance import Acceptance, conditional_of, expected_tokens, parse_acceptance
from outrider.predict.errors import PredictError
from outrider.predict.session import reported
from outrider.stack import find_stack


def test_seventy_percent_means_two_different_things() -> None:
    assert parse_acceptance("rate=0.7", 3).tokens(3) == pytest.approx(3.1)
    assert parse_acceptance("conditional=0.7", 3).tokens(3) == pytest.approx(2.533)


@given(st.floats(0, 0.999), st.integers(1, 8))
def test_a_length_gives_its_conditional_acceptance_back(conditional: float, k: int) -> None:
    assert conditional_of(expected_tokens(conditional, k), k) == pytest.approx(conditional, abs=1e-6)


def test_positions_are_added_up_and_continued_by_the_last_ratio() -> None:
    known = Acceptance.of_positions([0.8, 0.4], "made")
    assert known.tokens(1) == pytest.approx(1.8)
    assert known.tokens(2) == pytest.approx(2.2)
    assert known.tokens(3) == pytest.approx(2.4)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("0.7", "conditional"),
        ("rate=1.2", "between 0 and 1"),
        ("0.4,0.6", "rise"),
        ("1.4,0.6", "between 0 and 1"),
        ("al=5", "between 1 and 4"),
        ("al=0.5", "impossible"),
        ("speed=2", "no acceptance"),
    ],
)
def test_what_cannot_be_is_refused(text: str, told: str) -> None:
    with pytest.raises(PredictError, match=told):
        parse_acceptance(text, 3)


def test_rates_that_the_stack_sets_are_what_is_predicted_with() -> None:
    stack = find_stack("kimi-shape8-h200")
    said = reported(stack, "eagle3-auto")
    assert said is not None
    assert (said.tokens(1), said.tokens(3)) == (pytest.approx(1.66), pytest.approx(2.41))
    length = reported(stack, "static3")
    assert length is not None
    assert length.tokens(3) == pytest.approx(2.4)
