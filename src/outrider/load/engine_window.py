"""The engine's counters around the window, and its gauges within it.

Expositions are kept as text and read after the window: parsing one takes some 10 ms, in which the load
process could not note the time of a token.
"""

from __future__ import annotations

from statistics import fmean
from time import perf_counter
from typing import TYPE_CHECKING

import gevent

from outrider.errors import EngineError
from outrider.load.connection import Address, Connection, ExchangeError
from outrider.load.http1 import ProtocolError, ResponseDecoder
from outrider.load.result import EngineWindow

if TYPE_CHECKING:
    from outrider.engine.base import EngineAdapter, EngineScrape

_TIMEOUT_S = 10.0
_MAX_SAMPLES = 16
_FIRST_INTERVAL_S = 1.0  # a reading costs the engine some 10 ms of CPU


def fetch(address: Address, path: str, timeout_s: float = _TIMEOUT_S, *, headers: str = "") -> str:
    """GET a small resource; raises ExchangeError or ProtocolError."""
    connection = Connection(address, timeout_s)
    try:
        request = f"GET {address.prefix}{path} HTTP/1.1\r\nHost: {address.host_header}\r\nConnection: close\r\n"
        connection.send(f"{request}Accept-Encoding: identity\r\n{headers}\r\n".encode(), timeout_s)
        connection.listen(timeout_s)
        decoder, body = ResponseDecoder(), bytearray()
        while not decoder.complete:
            data = connection.receive()[0]
            if not data:
                break
            for piece in decoder.feed(data):
                body += piece
        if not decoder.eof() or decoder.status != 200:
            raise ProtocolError(f"GET {path} answered {decoder.status or 'nothing'}")
        return body.decode("utf-8", "replace")
    finally:
        connection.close()


class EngineWatch:
    """Reads metrics at the window's two ends and samples gauges in between.

    Args:
        adapter: reads this engine's expositions.
        address: the server.
        path: metrics path below the server's root.

    Attributes:
        error: why a reading failed; empty if none did.
    """

    def __init__(self, adapter: EngineAdapter, address: Address, path: str) -> None:
        self._adapter, self._address, self._path = adapter, address, path
        self._ends: list[tuple[float, str]] = []
        self._samples: list[str] = []
        self._sampler: gevent.Greenlet | None = None
        self.error = ""

    def open(self) -> None:
        """Read at the window's start, and begin to sample."""
        self._read_end()
        self._sampler = gevent.spawn(self._sample)

    def close(self) -> None:
        """Read at the window's end."""
        if self._sampler is not None:
            self._sampler.kill()
        if self._ends:
            self._read_end()

    def _read_end(self) -> None:
        text = self._fetch()
        if text:
            self._ends.append((perf_counter(), text))

    def _fetch(self) -> str:
        try:
            return fetch(self._address, self._path)
        except (ExchangeError, ProtocolError) as error:
            self.error = str(error)
            return ""

    def _sample(self) -> None:
        interval_s = _FIRST_INTERVAL_S
        while True:
            gevent.sleep(interval_s)
            text = self._fetch()
            if text:
                self._samples.append(text)
            if len(self._samples) >= _MAX_SAMPLES:  # thin out and slow down: bounded, still evenly spaced
                del self._samples[::2]
                interval_s *= 2

    def summary(self, client_tpot_mean_s: float | None) -> EngineWindow | None:
        """Read what was collected; None (and `error`) if that does not make a window."""
        if len(self._ends) != 2:
            return None
        try:
            (start, first), (end, last) = ((at, self._adapter.read_metrics(text)) for at, text in self._ends)
            between = [self._adapter.read_metrics(text) for text in self._samples]
        except EngineError as error:
            self.error = str(error)
            return None
        window = engine_window(self._adapter.name, end - start, first, last, between)
        return window.model_copy(update={"client_tpot_mean_s": client_tpot_mean_s})


def engine_window(
    name: str, window_s: float, first: EngineScrape, last: EngineScrape, between: list[EngineScrape]
) -> EngineWindow:
    """Differences between two readings, and means of gauges over the readings in between.

    Without a reading in between (short windows) the gauges are those of the two ends.
    """
    delta = last.since(first)
    spec = delta.spec
    gauges = between or [first, last]
    return EngineWindow(
        adapter=name,
        window_s=window_s,
        generation_tokens=delta.generation_tokens,
        prompt_tokens=delta.prompt_tokens,
        first_tokens=delta.first_tokens,
        tokens_per_step=delta.tokens_per_step,
        al=spec.acceptance_length if spec else None,
        drafts=spec.drafts if spec else None,
        draft_tokens=spec.draft_tokens if spec else None,
        accepted_tokens=spec.accepted_tokens if spec else None,
        accepted_per_pos=spec.per_position if spec else (),
        ttft_mean_s=delta.ttft.mean if delta.ttft else None,
        tpot_mean_s=delta.tpot.mean if delta.tpot else None,
        tpot_count=delta.tpot.count if delta.tpot else None,
        preemptions=delta.preemptions,
        prefix_queries=delta.prefix_queries,
        prefix_hits=delta.prefix_hits,
        mean_running=_mean([s.running for s in gauges]),
        mean_waiting=_mean([s.waiting for s in gauges]),
        kv_cache_usage_max=max((s.kv_cache_usage for s in gauges if s.kv_cache_usage is not None), default=None),
        samples=len(gauges),
        restarted=first.start_time != last.start_time,
    )


def _mean(values: list[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return fmean(known) if known else None
