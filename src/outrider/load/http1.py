"""An HTTP/1.1 response, decoded incrementally (RFC 9112): only what a streaming client needs.

Written out because the time of a token is the time of the socket read that brought it: general clients
buffer, and hide that read.
"""

from __future__ import annotations

_MAX_HEAD = 64 * 1024
_MAX_LINE = 4096


class ProtocolError(Exception):
    """The bytes are not an HTTP/1.1 response that this decoder reads."""


class ResponseDecoder:
    """Head and body of one response.

    Feed it what the socket gives; it returns the pieces of the body in them.

    Attributes:
        status: status code; 0 until the head is complete.
        headers: names in lower case; a repeated header keeps its last value.
        complete: the whole body has been seen.
        keep_alive: the connection may carry another request, once `complete`.
    """

    __slots__ = ("_buffer", "_chunked", "_left", "_state", "complete", "headers", "keep_alive", "status")

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.complete = False
        self.keep_alive = False
        self._buffer = b""
        self._chunked = False
        self._left = 0  # bytes of the body or chunk still to come; -1: until the connection closes
        self._state = "head"

    def feed(self, data: bytes) -> list[bytes]:
        """Body pieces in `data`; raises ProtocolError on anything that is not HTTP."""
        if self._state == "head":
            data = self._head(self._buffer + data)
            if not self.status or self.complete:
                return []
        if self._chunked:
            return self._feed_chunked(data)
        return self._feed_plain(data)

    def eof(self) -> bool:
        """The connection closed: was the response whole?"""
        if self.status and self._left == -1:
            self.complete = True
        return self.complete

    def _head(self, data: bytes) -> bytes:
        """Read the head; returns the bytes after it, or keeps all of them if it is not complete."""
        while True:
            end = data.find(b"\r\n\r\n")
            if end < 0:
                if len(data) > _MAX_HEAD or (len(data) >= 5 and not data.startswith(b"HTTP/")):
                    raise ProtocolError(f"not an HTTP/1.1 response: {data[:60]!r}")
                self._buffer = data
                return b""
            lines = data[:end].decode("latin-1").split("\r\n")
            data = data[end + 4 :]
            parts = lines[0].split(" ", 2)
            if len(parts) < 2 or not parts[0].startswith("HTTP/1.") or not parts[1].isdecimal():
                raise ProtocolError(f"not an HTTP/1.1 response: {lines[0][:60]!r}")
            status = int(parts[1])
            if status >= 200:  # interim answers (100, 103) precede the real one
                break
        self._buffer = b""
        self.status = status
        for line in lines[1:]:
            name, _, value = line.partition(":")
            self.headers[name.strip().lower()] = value.strip()
        self._frame(parts[0])
        return data

    def _frame(self, version: str) -> None:
        """Decide how the body ends (RFC 9112, section 6.3)."""
        self._state = "body"
        connection = self.headers.get("connection", "").lower()
        self.keep_alive = "close" not in connection and (version != "HTTP/1.0" or "keep-alive" in connection)
        if self.headers.get("content-encoding", "identity") != "identity":
            raise ProtocolError("the server compressed the stream although the request said identity")
        length = self.headers.get("content-length")
        if "chunked" in self.headers.get("transfer-encoding", "").lower():
            self._chunked, self._state = True, "size"
        elif self.status in {204, 304} or length == "0":
            self.complete = True
        elif length is None:
            self._left, self.keep_alive = -1, False
        elif length.isdecimal():
            self._left = int(length)
        else:
            raise ProtocolError(f"content-length is {length[:40]!r}")

    def _feed_plain(self, data: bytes) -> list[bytes]:
        if self._left == -1:
            return [data] if data else []
        data = data[: self._left]
        self._left -= len(data)
        self.complete = self._left == 0
        return [data] if data else []

    def _feed_chunked(self, data: bytes) -> list[bytes]:
        if self._state == "size" and not self._buffer:
            whole = _one_chunk(data)
            if whole:
                return [whole]
        if self._buffer:
            data, self._buffer = self._buffer + data, b""
        out: list[bytes] = []
        pos, size = 0, len(data)
        while pos < size and not self.complete:
            if self._state == "data":
                piece = data[pos : pos + self._left]
                out.append(piece)
                pos += len(piece)
                self._left -= len(piece)
                if self._left == 0:
                    self._state = "end"
                continue
            end = data.find(b"\n", pos)
            if end < 0:
                self._buffer = data[pos:]
                if len(self._buffer) > _MAX_LINE:
                    raise ProtocolError("a chunk header without end")
                break
            self._chunk_line(data[pos:end].rstrip(b"\r"))
            pos = end + 1
        return out

    def _chunk_line(self, line: bytes) -> None:
        if self._state == "end":
            if line:
                raise ProtocolError(f"a chunk is longer than it said: {line[:40]!r}")
            self._state = "size"
        elif self._state == "trailer":
            self.complete = not line
        else:
            try:
                self._left = int(line.split(b";", 1)[0], 16)
            except ValueError:
                raise ProtocolError(f"not a chunk size: {line[:40]!r}") from None
            self._state = "data" if self._left > 0 else "trailer"


def _one_chunk(data: bytes) -> bytes:
    """Content of exactly one whole chunk, as engines send one in a read nearly always; empty if it is not that."""
    end = data.find(b"\r\n")
    digits = data[:end]
    if not 0 < end < 9 or not digits.isalnum() or not data.endswith(b"\r\n"):
        return b""
    try:
        size = int(digits, 16)
    except ValueError:
        return b""  # the general path says what is wrong with it
    return data[end + 2 : -2] if len(data) == end + size + 4 else b""
