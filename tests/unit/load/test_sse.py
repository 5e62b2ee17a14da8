"""The decoder gives the same events however the bytes are cut."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.load.sse import EventTooLargeError, SseDecoder

LINE_TEXT = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=30)
LINE_END = st.sampled_from(["\n", "\r\n", "\r"])


@st.composite
def wires(draw: st.DrawFn) -> bytes:
    """A stream with comments, other fields, several data lines and mixed line ends."""
    wire = draw(st.sampled_from(["", "\ufeff"]))
    for lines in draw(st.lists(st.lists(LINE_TEXT, max_size=3), max_size=5)):
        for line in lines:
            noise = draw(st.sampled_from(["", ": keep-alive", "event: message", "id: 7", "retry: 10", "datax: no"]))
            if noise:
                wire += noise + draw(LINE_END)
            space = " " if line.startswith(" ") else draw(st.sampled_from(["", " "]))
            wire += f"data:{space}{line}" + draw(LINE_END)
        wire += draw(LINE_END)
    return wire.encode()


def cuts(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted({p % (len(data) + 1) for p in places}), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges)]


def reference(wire: bytes) -> list[bytes]:
    """The specification, read literally on the whole input."""
    text = wire.decode().removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    events, data = [], []
    for line in text.split("\n")[:-1]:
        if not line:
            if data:
                events.append("\n".join(data).encode())
            data = []
        elif not line.startswith(":"):
            name, _, value = line.partition(":")
            if name == "data":
                data.append(value.removeprefix(" "))
    return events


@given(wires(), st.lists(st.integers(0, 10_000), max_size=20))
def test_any_split_gives_the_events_that_the_specification_gives(wire: bytes, places: list[int]) -> None:
    decoder = SseDecoder()
    got = [event for piece in cuts(wire, places) for event in decoder.feed(piece)]
    assert got == reference(wire)


@given(st.lists(LINE_TEXT, min_size=1, max_size=5))
def test_byte_by_byte_keeps_multibyte_characters_whole(payloads: list[str]) -> None:
    wire = "".join(f"data: {p}\n\n" for p in payloads).encode()
    decoder = SseDecoder()
    got = [event for byte in wire for event in decoder.feed(bytes([byte]))]
    assert got == [p.encode() for p in payloads]


def test_line_ends_of_every_kind_in_one_stream() -> None:
    assert SseDecoder().feed(b"data: a\r\n\r\ndata: b\r\rdata: c\n\n") == [b"a", b"b", b"c"]


def test_cr_and_lf_in_different_reads_are_one_line_end() -> None:
    decoder = SseDecoder()
    assert decoder.feed(b"data: a\r") == []
    assert decoder.feed(b"\ndata: b\r") == []
    assert decoder.feed(b"\n\r") == [b"a\nb"]
    assert decoder.feed(b"\ndata: c\n\n") == [b"c"]


def test_a_huge_event_in_small_reads_is_one_event() -> None:
    decoder = SseDecoder()
    payload = b"x" * 3_000_000
    wire = b"data: " + payload + b"\n\n"
    got = [event for at in range(0, len(wire), 16_384) for event in decoder.feed(wire[at : at + 16_384])]
    assert got == [payload]


@pytest.mark.parametrize("step", [7, 100, 10_000])
def test_an_event_above_the_limit_is_refused_however_it_comes(step: int) -> None:
    decoder = SseDecoder(max_event_bytes=1000)
    wire = b"data: " + b"x" * 1001 + b"\n\n"
    pieces = [wire[at : at + step] for at in range(0, len(wire), step)]
    with pytest.raises(EventTooLargeError):
        list(map(decoder.feed, pieces))


def test_many_events_below_the_limit_never_add_up() -> None:
    decoder = SseDecoder(max_event_bytes=100)
    assert len([e for _ in range(50) for e in decoder.feed(b"data: " + b"y" * 60 + b"\n\ndata: z\n\n")]) == 100


def test_an_event_without_its_blank_line_is_left_over() -> None:
    decoder = SseDecoder()
    assert decoder.feed(b"data: a\n\ndata: [DONE]") == [b"a"]
    assert decoder.leftover() == b"[DONE]"
    assert decoder.leftover() == b""
