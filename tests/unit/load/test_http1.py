"""Responses are read alike however the bytes are cut."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.load.http1 import ProtocolError, ResponseDecoder

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted({p % (len(data) + 1) for p in places}), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges)]


def read(decoder: ResponseDecoder, pieces: list[bytes]) -> bytes:
    return b"".join(part for piece in pieces for part in decoder.feed(piece))


PLACES = st.lists(st.integers(0, 10_000), max_size=30)


@given(st.lists(st.binary(min_size=1, max_size=60), max_size=8), PLACES)
def test_chunked_body_survives_any_split(parts: list[bytes], places: list[int]) -> None:
    wire = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
    wire += b"".join(b"%X;ext=1\r\n%b\r\n" % (len(p), p) for p in parts) + b"0\r\nTrailer: x\r\n\r\n"
    decoder = ResponseDecoder()
    assert read(decoder, cut(wire, places)) == b"".join(parts)
    assert (decoder.status, decoder.complete, decoder.keep_alive) == (200, True, True)


@given(st.binary(max_size=200), PLACES)
def test_body_of_known_length_survives_any_split(body: bytes, places: list[int]) -> None:
    wire = HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body
    decoder = ResponseDecoder()
    assert read(decoder, cut(wire, places)) == body
    assert decoder.complete


@given(st.binary(max_size=200), PLACES)
def test_body_until_close_is_complete_only_at_the_end(body: bytes, places: list[int]) -> None:
    decoder = ResponseDecoder()
    assert read(decoder, cut(HEAD + b"\r\n" + body, places)) == body
    assert not decoder.complete
    assert decoder.eof()
    assert not decoder.keep_alive


def test_a_chunked_body_that_is_cut_is_not_whole() -> None:
    decoder = ResponseDecoder()
    assert read(decoder, [HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nabc"]) == b"abc"
    assert not decoder.eof()


def test_interim_answers_are_skipped() -> None:
    decoder = ResponseDecoder()
    read(decoder, [b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 503 Busy\r\nContent-Length: 2\r\n\r\nno"])
    assert (decoder.status, decoder.complete) == (503, True)


@pytest.mark.parametrize(
    ("head", "alive"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", True),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", False),
        (b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n", True),
    ],
)
def test_keep_alive_follows_version_and_header(head: bytes, alive: bool) -> None:
    decoder = ResponseDecoder()
    decoder.feed(head)
    assert (decoder.complete, decoder.keep_alive) == (True, alive)


@pytest.mark.parametrize(
    "wire",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"\x15\x03\x03\x00\x02\x02\x50",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        HEAD + b"Content-Encoding: gzip\r\n\r\n",
        HEAD + b"Content-Length: -5\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"1" * 5000,
        b"HTTP/1.1 200 OK\r\n" + b"x" * 70_000,
    ],
)
def test_what_is_not_http_is_refused(wire: bytes) -> None:
    with pytest.raises(ProtocolError):
        ResponseDecoder().feed(wire)
