from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.vllm_ext.acceptance import Acceptance
from outrider.vllm_ext.step_time import Recent, typical


def test_a_long_draft_tells_the_yield_of_every_shorter_one() -> None:
    seen = Acceptance(3, half_life=1e9)
    # Ten requests: two got 1 token, three got 2, one got 3, four got 4.
    seen.observe(10, 3, [0, 2, 3, 1, 4])

    assert seen.tokens(0) == 1.0
    assert seen.tokens(1) == pytest.approx(1.8)
    assert seen.tokens(2) == pytest.approx(1.8 + 0.5)
    assert seen.tokens(3) == pytest.approx(2.7)


def test_a_short_draft_renews_what_it_reached_and_keeps_the_rest_as_a_guess() -> None:
    seen = Acceptance(2, half_life=50)
    for _ in range(40):
        seen.observe(4, 2, [0, 4, 0, 0])
    assert seen.tokens(2) == pytest.approx(1.0)
    for _ in range(100):
        seen.observe(4, 1, [0, 0, 4, 0])

    assert seen.tokens(1) == pytest.approx(2.0, abs=0.01)
    assert seen.tokens(2) == pytest.approx(2.0, abs=0.01)
    assert seen.doubt(2) > 10 * seen.doubt(1)


def test_what_was_known_fades_while_nothing_is_drafted() -> None:
    seen = Acceptance(1, half_life=100)
    seen.observe(100, 1, [0, 0, 100])
    before = seen.evidence(1)
    for _ in range(10):
        seen.observe(10, 0, [0, 10, 0])

    assert seen.evidence(1) == pytest.approx(before / 2)
    assert seen.tokens(1) == pytest.approx(2.0)


def test_without_evidence_there_is_no_figure_and_endless_doubt() -> None:
    seen = Acceptance(2, half_life=10)
    assert seen.tokens(1) is None
    assert seen.doubt(1) == math.inf
    assert seen.doubt(0) == 0.0


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), min_size=1, max_size=60))
def test_tokens_lie_between_1_and_k_plus_1_and_grow_with_k(steps: list[tuple[int, int]]) -> None:
    seen = Acceptance(3, half_life=20)
    for k, m in steps:
        got = min(m, k + 1)
        seen.observe(1, k, [int(got == i) for i in range(5)])
    found = [tokens for k in range(4) if (tokens := seen.tokens(k)) is not None]

    assert found == sorted(found)
    assert all(1.0 <= tokens <= k + 1 + 1e-9 for k, tokens in enumerate(found))


@settings(deadline=None)
@given(st.floats(1e-4, 10.0), st.integers(5, 40), st.floats(3.0, 1e4))
def test_one_outlier_hardly_moves_the_typical_step(step: float, count: int, factor: float) -> None:
    assert typical([step] * (count - 1) + [step * factor]) <= step * (1 + 1.0 / count + 1e-9)


def test_steps_of_two_kinds_give_their_mean_and_not_one_of_them() -> None:
    assert typical([0.01] * 12 + [0.015] * 12) == pytest.approx(0.0125)


def test_no_sample_is_an_error() -> None:
    with pytest.raises(ValueError, match="no step was timed"):
        typical([])


def test_the_ring_keeps_the_last_samples() -> None:
    ring = Recent(3)
    for seconds in (1.0, 2.0, 3.0, 4.0):
        ring.add(seconds)
    assert sorted(ring.samples()) == [2.0, 3.0, 4.0]
    ring.clear()
    assert len(ring) == 0
    assert ring.samples() == []
