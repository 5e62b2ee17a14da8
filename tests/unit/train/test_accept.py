from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from outrider.train.accept import accepted

IDS = [9, 9, 1, 2, 3, 4]
ANSWER = [False, False, True, True, True, True]


def _perfect(ids: list[int], k: int) -> list[list[int]]:
    return [[*ids[step + 1 :], *([0] * (step + 1))] for step in range(k)]


def test_perfect_drafts_are_accepted_as_far_as_the_answer_goes() -> None:
    assert accepted(_perfect(IDS, 3), IDS, ANSWER) == [(3, 3), (2, 2), (1, 1)]


def test_drafts_that_are_never_right_are_tried_once() -> None:
    assert accepted([[0] * 6] * 3, IDS, ANSWER) == [(0, 3), (0, 0), (0, 0)]


def test_a_step_counts_only_where_the_steps_before_it_were_right() -> None:
    drafts = _perfect(IDS, 2)
    drafts[0][3] = 0  # wrong after position 3
    assert accepted(drafts, IDS, ANSWER) == [(2, 3), (1, 1)]


def test_the_prompt_is_not_judged() -> None:
    assert accepted(_perfect(IDS, 1), IDS, [False] * 6) == [(0, 0)]


@given(
    ids=st.lists(st.integers(0, 3), min_size=1, max_size=30),
    start=st.integers(0, 30),
    k=st.integers(1, 4),
    data=st.data(),
)
def test_tries_of_a_step_never_exceed_what_the_step_before_accepted(
    ids: list[int], start: int, k: int, data: st.DataObject
) -> None:
    row = st.lists(st.integers(0, 3), min_size=len(ids), max_size=len(ids))
    found = accepted([data.draw(row) for _ in range(k)], ids, [j >= start for j in range(len(ids))])
    for (right, tried), (_, following) in pairwise(found):
        assert right <= tried
        assert following <= right
