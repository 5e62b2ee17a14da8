"""Server-sent events, decoded incrementally from any split of the bytes.

Follows the WHATWG specification ("Server-sent events", section "Interpreting an event stream"): lines end
with LF, CR or CRLF, a line that starts with a colon is a comment, several `data` lines join with LF. Fields
other than `data` do not matter to OpenAI-compatible streams and are dropped.
"""

from __future__ import annotations

_BOM = b"\xef\xbb\xbf"
MAX_EVENT_BYTES = 8 * 1024 * 1024  # a token's JSON has some hundred bytes; this only bounds memory


class EventTooLargeError(Exception):
    """One event outgrew the limit; the stream cannot be read any further."""


class SseDecoder:
    r"""Turns reads of a socket into the payloads of events.

    >>> decoder = SseDecoder()
    >>> decoder.feed(b"data: a")
    []
    >>> decoder.feed(b"b\n\ndata: c\n\n")
    [b'ab', b'c']

    Args:
        max_event_bytes: an event (with comments and other fields) above this raises EventTooLargeError.
    """

    __slots__ = ("_data", "_limit", "_size", "_skip_lf", "_started", "_tail")

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._limit = max_event_bytes
        self._tail: list[bytes] = []  # pieces of a line whose end has not arrived
        self._data: list[bytes] = []  # `data` lines of an event whose end has not arrived
        self._size = 0
        self._skip_lf = False  # the last byte was CR: a LF that follows belongs to it
        self._started = False

    def feed(self, data: bytes) -> list[bytes]:
        """Payloads of the events that `data` completes, in order."""
        if (
            not self._tail
            and not self._data
            and data.startswith(b"data: ")
            and data.endswith(b"\n\n")
            and data.find(b"\n") == len(data) - 2
            and b"\r" not in data
            and len(data) <= self._limit
        ):
            # One whole event in one read, as engines send them nearly always.
            self._started, self._skip_lf = True, False
            return [data[6:-2]]
        return self._feed_lines(data)

    def _feed_lines(self, data: bytes) -> list[bytes]:
        if self._skip_lf and data:
            self._skip_lf = False
            if data.startswith(b"\n"):
                data = data[1:]
        if b"\r" in data:
            self._skip_lf = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if not data:
            return []
        lines = data.split(b"\n")
        rest = lines.pop()
        events: list[bytes] = []
        for line in lines:
            if self._tail:
                self._tail.append(line)
                line = b"".join(self._tail)  # noqa: PLW2901
                self._tail.clear()
            self._line(line, events)
        if rest:
            self._grow(len(rest))
            self._tail.append(rest)
        return events

    def _line(self, line: bytes, events: list[bytes]) -> None:
        if not self._started:
            self._started = True
            line = line.removeprefix(_BOM)
        if not line:
            if self._data:
                events.append(self._data[0] if len(self._data) == 1 else b"\n".join(self._data))
                self._data.clear()
            self._size = 0
            return
        if line.startswith(b"data:"):
            line = line[6:] if line.startswith(b"data: ") else line[5:]
        elif line != b"data":
            return
        else:
            line = b""
        self._grow(len(line))
        self._data.append(line)

    def _grow(self, n_bytes: int) -> None:
        self._size += n_bytes
        if self._size > self._limit:
            raise EventTooLargeError(f"an event exceeds {self._limit} bytes")

    def leftover(self) -> bytes:
        """Payload of an event that was begun and not ended when the stream closed; empty if none.

        The specification drops it; the caller may accept an end marker whose blank line is missing.
        """
        events: list[bytes] = []
        if self._tail:
            self._line(b"".join(self._tail), events)
            self._tail.clear()
        self._line(b"", events)
        return events[0] if events else b""
