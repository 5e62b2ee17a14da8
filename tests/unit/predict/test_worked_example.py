"""The flagship by hand: what the page says is what the code gives."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from outrider.predict.session import open_session
from outrider.predict.surface import Wanted, predict
from outrider.predict.worked_example import FOLK, PROFILE, inserted
from outrider.stack import find_stack

PAGE = Path(__file__).resolve().parents[3] / "docs" / "predicting.md"
_NUMBER = re.compile(r"\d+\.\d+")


def test_the_page_shows_what_the_code_gives() -> None:
    shown = PAGE.read_text(encoding="utf-8")
    computed = inserted(shown)
    assert _NUMBER.sub("#", shown) == _NUMBER.sub("#", computed)
    # Digits may round otherwise with another linear algebra library.
    pairs = zip(_NUMBER.findall(shown), _NUMBER.findall(computed), strict=True)
    assert [(a, b) for a, b in pairs if float(a) != pytest.approx(float(b), rel=0.03, abs=0.11)] == []


def test_the_folk_estimate_is_reached_under_one_reading_only() -> None:
    stack = find_stack("kimi-k2.5-rtx6000x8")

    def speedup(acceptance: str) -> float:
        session = open_session(stack, shares=PROFILE, acceptance=acceptance, draws=20)
        wanted = [Wanted("eagle3", 3, 1, 512.0)]
        found = predict(session.fit, wanted, session.draft_bytes, acceptance=session.acceptance)[0].speedup
        assert found is not None
        assert found.low < found.mid < found.high
        return found.mid

    assert FOLK[0] < speedup("rate=0.7") < FOLK[1]
    assert speedup("conditional=0.7") < FOLK[0]
    assert speedup("al=2.14") < FOLK[0]
