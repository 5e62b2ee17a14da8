"""What the reader makes of streams: tokens, text and outcome."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.load.outcome import Outcome
from outrider.load.sse import EventTooLargeError
from outrider.load.stream import StreamReader


def event(delta=None, usage=None, finish=None, **more) -> bytes:
    body = {"choices": [{"index": 0, "delta": delta or {}, "finish_reason": finish}], **more}
    if usage is not None:
        body["usage"] = {"prompt_tokens": 3, "completion_tokens": usage, "total_tokens": usage + 3}
    return b"data: " + json.dumps(body, ensure_ascii=False).encode() + b"\n\n"


def closing(usage) -> bytes:
    return b"data: " + json.dumps({"choices": [], "usage": {"completion_tokens": usage}}).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"
ROLE = event({"role": "assistant", "content": ""}, 0)


def read(*events: bytes, step: float = 1.0) -> StreamReader:
    reader = StreamReader()
    for n, data in enumerate(events):
        reader.feed(data, n * step)
    reader.close()
    return reader


def test_a_stream_as_the_engine_sends_it() -> None:
    reader = read(
        ROLE,
        event({"content": "Hello"}, 1),
        event({"content": " big wide"}, 3),
        event({"content": " world"}, 4),
        event({}, 5, "stop"),
        closing(5),
        DONE,
    )
    clock = reader.clock
    assert reader.outcome() is Outcome.STOP
    assert reader.text == "Hello big wide world"
    assert (clock.first_at, clock.last_at, clock.chunks) == (1.0, 4.0, 4)
    assert (clock.first_tokens, clock.total_tokens, clock.source) == (1, 5, "continuous_usage")
    assert clock.tpot_s == pytest.approx(3.0 / 4)
    assert reader.prompt_tokens == 3
    assert reader.tokens_seen == 5


def test_a_final_event_whose_usage_does_not_grow_is_no_chunk() -> None:
    reader = read(ROLE, event({"content": "a"}, 1), event({"content": "b"}, 2), event({}, 2, "length"), DONE)
    assert (reader.clock.last_at, reader.clock.chunks) == (2.0, 2)


@pytest.mark.parametrize(
    "delta",
    [
        {"content": "x"},
        {"reasoning": "x"},
        {"reasoning_content": "x"},
        {"refusal": "x"},
        {"role": "assistant", "content": None, "reasoning_content": "x"},
        {"tool_calls": [{"index": 0, "function": {"arguments": "x"}}]},
        {"tool_calls": [{"index": 0, "function": {"name": "x"}}]},
    ],
)
@pytest.mark.parametrize("counted", [True, False])
def test_every_kind_of_delta_is_text_and_time(delta: dict, counted: bool) -> None:
    usage = (1, 2) if counted else (None, None)
    reader = read(event(delta, usage[0]), event(delta, usage[1], "stop"), closing(2), DONE)
    assert reader.outcome() is Outcome.STOP
    assert reader.text == "xx"
    assert (reader.clock.first_at, reader.clock.last_at, reader.clock.chunks) == (0.0, 1.0, 2)


def test_completions_carry_text_without_delta() -> None:
    first, second = ({"choices": [{"text": t, "finish_reason": f}]} for t, f in (("ab", None), ("cd", "length")))
    reader = read(*(b"data: " + json.dumps(e).encode() + b"\n\n" for e in (first, second)), closing(7), DONE)
    assert (reader.outcome(), reader.text, reader.clock.total_tokens) == (Outcome.LENGTH, "abcd", 7)


def test_without_usage_in_chunks_the_first_counts_as_one_token() -> None:
    reader = read(
        event({"role": "assistant", "content": ""}),
        event({"content": "a"}),
        event({"content": "b"}),
        event({}, finish="stop"),
        closing(6),
        DONE,
    )
    assert reader.clock.source == "final_usage"
    assert reader.clock.tpot_s == pytest.approx((3.0 - 1.0) / (6 - 1))


def test_usage_that_only_comes_with_the_finish_is_not_taken_for_continuous() -> None:
    reader = read(event({"content": "a"}), event({"content": "b"}), event({"content": "c"}, 9, "stop"), DONE)
    assert reader.clock.source == "final_usage"
    assert (reader.clock.first_at, reader.clock.last_at) == (0.0, 2.0)
    assert reader.clock.tpot_s == pytest.approx(2.0 / 8)


def test_no_usage_at_all_leaves_tokens_unknown() -> None:
    reader = read(event({"content": "a"}), event({"content": "b"}, finish="stop"), DONE)
    assert (reader.clock.source, reader.clock.total_tokens, reader.clock.tpot_s) == ("none", None, None)
    assert reader.outcome() is Outcome.STOP


GOOD = (ROLE, event({"content": "a"}, 1), event({"content": "b"}, 2, "length"), closing(2), DONE)


@pytest.mark.parametrize(
    ("stream", "outcome"),
    [
        (GOOD, Outcome.LENGTH),
        ((ROLE, event({"content": "a"}, 1, "tool_calls"), DONE), Outcome.TOOL_CALLS),
        ((ROLE, event({"content": "a"}, 1, "abort"), DONE), Outcome.ABORTED),
        ((ROLE, event({"content": "a"}, 1, "content_filter"), DONE), Outcome.OTHER_FINISH),
        (
            (ROLE, event({"content": "a"}, 1), b'data: {"error": {"message": "boom"}}\n\n', DONE),
            Outcome.ERROR_EVENT,
        ),
        ((ROLE, event({"content": "a"}, 1), DONE), Outcome.NO_FINISH),
        ((ROLE, event({"content": "a"}, 1, "stop")), Outcome.MISSING_DONE),
        ((ROLE, event({"content": "a"}, 1)), Outcome.CUT_OFF),
        ((ROLE, event({"content": "a"}, 1)[:-20]), Outcome.CUT_OFF),
        ((), Outcome.CUT_OFF),
        ((ROLE, b'data: {"choices": [\n\n', *GOOD[1:]), Outcome.MALFORMED_JSON),
        ((ROLE, b"data: 17\n\n", *GOOD[1:]), Outcome.MALFORMED_JSON),
        ((ROLE, b'data: {"choices": [5]}\n\n', *GOOD[1:]), Outcome.MALFORMED_JSON),
        ((ROLE, b'data: {"x": "\xff"}\n\n', *GOOD[1:]), Outcome.NOT_UTF8),
        ((ROLE, event({}, 5), event({}, 9, "length"), DONE), Outcome.TOKENS_WITHOUT_TEXT),
        ((ROLE, event({"unheard_of": "a"}, 2, "stop"), DONE), Outcome.TOKENS_WITHOUT_TEXT),
        ((ROLE, event({}, 1, "stop"), DONE), Outcome.STOP),
        ((*GOOD[:-1], b"data: [DONE]"), Outcome.LENGTH),
    ],
)
def test_each_end_has_its_own_outcome(stream: tuple[bytes, ...], outcome: Outcome) -> None:
    assert read(*stream).outcome() is outcome


def test_an_unreadable_event_does_not_stop_the_count_behind_it() -> None:
    reader = read(ROLE, b"data: {nonsense\n\n", *GOOD[1:])
    assert reader.clock.total_tokens == 2
    assert "nonsense" in reader.error


def test_an_oversized_event_ends_the_reading() -> None:
    reader = StreamReader(max_event_bytes=500)
    with pytest.raises(EventTooLargeError):
        reader.feed(b"data: " + b"x" * 501, 0.0)
    assert reader.outcome() is Outcome.EVENT_TOO_LARGE


def test_kept_text_is_bounded_and_the_digest_is_not() -> None:
    long = read(event({"content": "y" * 30_000}, 1), event({"content": "a"}, 2, "stop"), DONE)
    other = read(event({"content": "y" * 30_000}, 1), event({"content": "b"}, 2, "stop"), DONE)
    assert len(long.text) == 16 * 1024
    assert long.text == other.text
    assert long.text_sha256 != other.text_sha256


@given(st.lists(st.integers(0, 100_000), max_size=30), st.text(min_size=1, max_size=10))
def test_any_split_of_the_bytes_reads_the_same(places: list[int], text: str) -> None:
    wire = b"".join((ROLE, event({"content": text}, 2), event({"reasoning": text}, 5, "stop"), closing(5), DONE))
    edges = [0, *sorted({p % (len(wire) + 1) for p in places}), len(wire)]
    reader = StreamReader()
    for a, b in itertools.pairwise(edges):
        reader.feed(wire[a:b], 1.0)
    reader.close()
    clock = reader.clock
    assert (reader.outcome(), reader.text) == (Outcome.STOP, text * 2)
    assert (clock.total_tokens, clock.first_tokens, clock.chunks) == (5, 2, 2)


@given(st.binary(max_size=300), st.lists(st.integers(0, 1000), max_size=5))
def test_no_input_makes_it_raise(junk: bytes, places: list[int]) -> None:
    reader = StreamReader()
    for prefix in (b"", b"data: "):
        for a, b in zip(
            [0, *sorted(p % (len(junk) + 1) for p in places)],
            [*sorted(p % (len(junk) + 1) for p in places), len(junk)],
            strict=True,
        ):
            reader.feed(prefix + junk[a:b], 0.0)
    reader.close()
    assert isinstance(reader.outcome(), Outcome)


JSON_VALUE = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(
                ["choices", "delta", "usage", "completion_tokens", "content", "tool_calls", "function", "error"]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)


@given(st.lists(JSON_VALUE, max_size=4))
def test_no_json_of_another_shape_makes_it_raise(values: list) -> None:
    reader = read(*(b"data: " + json.dumps(v).encode() + b"\n\n" for v in values))
    assert isinstance(reader.outcome(), Outcome)
