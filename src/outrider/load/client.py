"""The streaming client: one request, timed at the socket.

Chosen by measurement (benchmarks/README.md): sockets under gevent with Outrider's own decoders, because
every general client buffers reads, and the read is what has to be timed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from time import perf_counter

from gevent import GreenletExit

from outrider.load.connection import Address, Connection, ExchangeError, Pool
from outrider.load.http1 import ProtocolError, ResponseDecoder
from outrider.load.outcome import Outcome, of_status
from outrider.load.sse import EventTooLargeError
from outrider.load.stream import StreamReader

_ERROR_BODY = 2000
_END_OF_BODY_S = 1.0  # after [DONE] only the chunked encoding's end is to come


@dataclass(slots=True)
class Exchange:
    """One request and what came of it; filled in while it runs.

    Attributes:
        reader: the stream's text, tokens and their times.
        started_at: when the client began (before taking a connection); `perf_counter` seconds.
        sent_at: just before the request's first byte was written; None if no connection came about.
        ended_at: end of the response, or of the attempt.
        connected: a new connection was opened for it.
        reconnected: re-sent because the server had closed the idle connection.
        status: HTTP status, 0 if no answer came.
        outcome: how it ended; CANCELLED until it has.
        error: error text, empty if none.
    """

    reader: StreamReader = field(default_factory=StreamReader)
    started_at: float = 0.0
    sent_at: float | None = None
    ended_at: float = 0.0
    connected: bool = False
    reconnected: bool = False
    status: int = 0
    outcome: Outcome = Outcome.CANCELLED
    error: str = ""

    @property
    def ttft_s(self) -> float | None:
        """Time to first token."""
        return None if self.sent_at is None else self.reader.clock.ttft_s(self.sent_at)

    @property
    def e2e_s(self) -> float | None:
        """Request sent to end of the response."""
        return None if self.sent_at is None else self.ended_at - self.sent_at


@dataclass(slots=True)
class Meter:
    """Counts that live views and the window's throughput read.

    Attributes:
        tokens: output tokens that have arrived.
        in_flight: requests under way.
        reconnects: requests re-sent on a new connection.
    """

    tokens: int = 0
    in_flight: int = 0
    reconnects: int = 0


class StreamClient:
    """Sends requests to one endpoint; safe to share between greenlets.

    Args:
        url: base URL without `/v1`.
        endpoint: `chat` or `completions`.
        api_key: bearer token, None for none.
        idle_timeout_s: inactivity limit of a stream.
        connect_timeout_s: limit for TCP and TLS set-up.
    """

    def __init__(
        self,
        url: str,
        endpoint: str = "chat",
        *,
        api_key: str | None = None,
        idle_timeout_s: float = 60.0,
        connect_timeout_s: float = 10.0,
    ) -> None:
        self.meter = Meter()
        self._pool = Pool(Address.of(url), connect_timeout_s)
        self._idle_timeout_s = idle_timeout_s
        address = self._pool.address
        path = "/v1/chat/completions" if endpoint == "chat" else "/v1/completions"
        self._head = (
            f"POST {address.prefix}{path} HTTP/1.1\r\nHost: {address.host_header}\r\n"
            "Accept: text/event-stream\r\nAccept-Encoding: identity\r\nContent-Type: application/json\r\n"
            + (f"Authorization: Bearer {api_key}\r\n" if api_key else "")
        )

    def request(self, body: bytes, exchange: Exchange) -> Exchange:
        """Send one request and read its stream to the end.

        Never raises for what the network or the server does: `exchange.outcome` says it. A greenlet that
        is killed leaves an exchange with the outcome CANCELLED.
        """
        exchange.started_at = perf_counter()
        self.meter.in_flight += 1
        try:
            self._run(f"{self._head}Content-Length: {len(body)}\r\n\r\n".encode() + body, exchange)
        except ExchangeError as error:
            exchange.reader.fault(error.outcome, str(error))
            exchange.outcome = exchange.reader.outcome()
        except ProtocolError as error:
            exchange.reader.fault(Outcome.PROTOCOL, str(error))
            exchange.outcome = exchange.reader.outcome()
        except EventTooLargeError:
            exchange.outcome = exchange.reader.outcome()
        finally:
            exchange.ended_at = exchange.ended_at or perf_counter()
            exchange.error = exchange.reader.error
            self.meter.in_flight -= 1
        return exchange

    def _run(self, request: bytes, exchange: Exchange) -> None:
        connection = self._pool.take()
        try:
            decoder = self._attempt(connection, request, exchange)
            if decoder is None:  # the server had closed this idle connection: nothing was answered
                connection.close()
                self.meter.reconnects += 1
                exchange.reconnected = True
                connection = self._pool.fresh()
                decoder = self._attempt(connection, request, exchange)
                assert decoder is not None
        except (ExchangeError, ProtocolError, EventTooLargeError, GreenletExit):
            connection.close()
            raise
        if decoder.complete and decoder.keep_alive:
            self._pool.give(connection)
        else:
            connection.close()

    def _attempt(self, connection: Connection, request: bytes, exchange: Exchange) -> ResponseDecoder | None:
        """One try on one connection; None if a reused connection turns out to be closed."""
        reused = connection.used > 0
        exchange.connected = not reused
        exchange.sent_at = perf_counter()
        try:
            connection.send(request, self._idle_timeout_s)
            connection.listen(self._idle_timeout_s)
            data, at = connection.receive()
        except ExchangeError as error:
            if reused and error.outcome is Outcome.RESET:
                return None
            raise
        if not data and reused:
            return None
        decoder = self._read(connection, data, at, exchange)
        connection.rest()
        return decoder

    def _read(self, connection: Connection, data: bytes, at: float, exchange: Exchange) -> ResponseDecoder:
        """Read the response whose first bytes are `data`, read at `at`."""
        decoder, reader, meter = ResponseDecoder(), exchange.reader, self.meter
        receive = connection.receive
        while data:
            pieces = decoder.feed(data)
            if exchange.status == 0 and decoder.status:
                exchange.status = decoder.status
                if not _streams(decoder):
                    return self._refused(connection, decoder, pieces, exchange)
            for piece in pieces:
                meter.tokens += reader.feed(piece, at)
            if decoder.complete:
                break
            if reader.done:
                exchange.ended_at = at
                data = _after_done(connection)
            else:
                data, at = receive()
        exchange.ended_at = exchange.ended_at or at
        whole = decoder.eof() or reader.done
        if not decoder.status:
            reader.fault(Outcome.RESET, "the connection closed before an answer")
        reader.close()
        if not whole:
            reader.fault(Outcome.CUT_OFF, "the connection closed in mid-stream")
        exchange.outcome = reader.outcome()
        return decoder

    def _refused(
        self, connection: Connection, decoder: ResponseDecoder, pieces: list[bytes], exchange: Exchange
    ) -> ResponseDecoder:
        """The answer is no stream: keep the beginning of its body as the error's text."""
        outcome = Outcome.NOT_A_STREAM if decoder.status == 200 else of_status(decoder.status)
        body = b"".join(pieces)
        while not decoder.complete and len(body) < _ERROR_BODY:
            data = connection.receive()[0]
            if not data:
                break
            body += b"".join(decoder.feed(data))
        exchange.ended_at = perf_counter()
        exchange.reader.fault(outcome, _readable(body) or f"HTTP {decoder.status}")
        exchange.outcome = outcome
        return decoder

    def close(self) -> None:
        """Close idle connections."""
        self._pool.close()


def _after_done(connection: Connection) -> bytes:
    """The end of the body after `[DONE]`; a server that never sends it costs the connection, not the answer."""
    try:
        connection.listen(_END_OF_BODY_S)
        return connection.receive()[0]
    except ExchangeError:
        return b""


def _streams(decoder: ResponseDecoder) -> bool:
    return decoder.status == 200 and "application/json" not in decoder.headers.get("content-type", "")


def _readable(body: bytes) -> str:
    return " ".join(body[:_ERROR_BODY].decode("utf-8", "replace").split())
