"""TTFT, TPOT and repetition on hand-made clocks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.load.timing import TokenClock, repetition


def clock_of(*chunks: tuple[float, int]) -> TokenClock:
    clock = TokenClock()
    for at, tokens in chunks:
        clock.event(at, tokens, text=True, finish=False)
    return clock


def test_tokens_of_the_first_chunk_are_not_divided_by() -> None:
    clock = clock_of((1.0, 3), (2.0, 5), (4.0, 9))
    assert clock.ttft_s(0.25) == 0.75
    assert clock.tpot_s == pytest.approx(3.0 / 6)
    assert clock.gaps_s == [1.0, 2.0]


def test_one_chunk_has_no_tpot() -> None:
    assert clock_of((1.0, 8)).tpot_s is None


def test_chunks_that_one_read_brought_have_no_time_between_them() -> None:
    assert clock_of((1.0, 2), (1.0, 4)).tpot_s is None
    assert clock_of((1.0, 2), (1.0, 4), (1.5, 5)).tpot_s == pytest.approx(0.5 / 3)


def test_no_chunk_has_no_ttft() -> None:
    clock = TokenClock()
    clock.event(1.0, 0, text=False, finish=False)
    assert clock.ttft_s(0.0) is None
    assert clock.tpot_s is None


def test_a_closing_count_above_the_last_chunk_does_not_stretch_tpot() -> None:
    clock = clock_of((1.0, 1), (2.0, 2))
    clock.final(3)
    assert (clock.total_tokens, clock.tpot_s) == (3, 1.0)


@given(
    st.lists(st.tuples(st.floats(1e-4, 1.0), st.integers(1, 6)), min_size=2, max_size=40),
    st.integers(1, 4),
)
def test_tpot_is_exact_for_any_pattern_of_tokens_per_chunk(steps: list[tuple[float, int]], first: int) -> None:
    at, total = 5.0, first
    chunks = [(at, total)]
    for gap, tokens in steps:
        at, total = at + gap, total + tokens
        chunks.append((at, total))
    clock = clock_of(*chunks)
    assert clock.tpot_s == pytest.approx(sum(g for g, _ in steps) / sum(n for _, n in steps), rel=1e-6)
    assert sum(clock.gaps_s) == pytest.approx(clock.last_at - clock.first_at)


def test_prose_has_unique_bigrams_and_a_loop_has_few() -> None:
    prose = "the quick brown fox jumps over a lazy dog while seven green birds watch from an old stone wall"
    assert repetition(prose).unique_bigrams == 1.0
    assert repetition("again and again " * 40).unique_bigrams < 0.05


def test_text_without_spaces_is_taken_by_character() -> None:
    assert repetition("天" * 200).unique_bigrams < 0.01
    assert repetition("".join(chr(0x4E00 + n) for n in range(200))).unique_bigrams == 1.0


def test_short_text_says_nothing() -> None:
    assert repetition("only a few words") is None
