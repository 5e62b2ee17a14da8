"""Rows and distributions of a load test, in memory that does not grow with it."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, BinaryIO

import orjson

from outrider.load.histogram import Sketch
from outrider.load.outcome import Outcome
from outrider.load.result import Latency, RequestRecord
from outrider.load.timing import repetition

if TYPE_CHECKING:
    from outrider.load.client import Exchange
    from outrider.load.in_flight import Finished
    from outrider.load.result import Phase
    from outrider.load.timing import TokenSource

_ERRORS_KEPT = 5
_TEXT_SAMPLE = 256


def latency(sketch: Sketch) -> Latency:
    """The published figures of a sketch."""
    return Latency(
        mean=sketch.mean,
        p50=sketch.quantile(0.5),
        p90=sketch.quantile(0.9),
        p95=sketch.quantile(0.95),
        p99=sketch.quantile(0.99),
        count=sketch.count,
    )


class Trend:
    """Least-squares slope of values over time, from running sums (Welford's update)."""

    def __init__(self) -> None:
        self.count = 0
        self._mean_t = self._mean_v = self._stt = self._stv = self._svv = 0.0

    def add(self, at: float, value: float) -> None:
        """Take in one value."""
        self.count += 1
        dt, dv = at - self._mean_t, value - self._mean_v
        self._mean_t += dt / self.count
        self._mean_v += dv / self.count
        self._stt += dt * (at - self._mean_t)
        self._stv += dt * (value - self._mean_v)
        self._svv += dv * (value - self._mean_v)

    def relative_change(self, span_s: float) -> tuple[float, float] | None:
        """Change over `span_s` as a share of the mean, and its t statistic; None below 8 values."""
        if self.count < 8 or self._stt <= 0 or self._mean_v <= 0:
            return None
        slope = self._stv / self._stt
        rest = max(self._svv - slope * self._stv, 0.0) / (self.count - 2)
        error = math.sqrt(rest / self._stt)
        return slope * span_s / self._mean_v, slope / error if error > 0 else math.copysign(math.inf, slope)


class Recorder:
    """Takes in every request as it ends.

    Args:
        sink: rows go here as JSON lines.
        keep_text: rows carry a sample of the output.
    """

    def __init__(self, sink: BinaryIO, *, keep_text: bool) -> None:
        self.ttft, self.tpot, self.icl, self.e2e = Sketch(), Sketch(), Sketch(), Sketch()
        self.lateness, self.bigrams = Sketch(), Sketch()
        self.window_tpot = Sketch()  # of requests of any phase that ended in the window: what the engine counts
        self.outcomes: Counter[Outcome] = Counter()
        self.unmeasured: Counter[Outcome] = Counter()
        self.errors: dict[Outcome, list[str]] = {}
        self.sources: Counter[TokenSource] = Counter()
        self.tokens = self.prompt_tokens = self.chunks = 0
        self.trend = Trend()
        self._sink = sink
        self._keep_text = keep_text
        self._held: list[RequestRecord] = []
        self._origin: float | None = None

    def open(self, at: float) -> None:
        """The window opened at `at`: rows are relative to it, those held back included."""
        self._origin = at
        for row in self._held:
            self._write(row)
        self._held.clear()

    def add(self, done: Finished) -> None:
        """Take in one request."""
        request, exchange = done.request, done.exchange
        late = None if done.due_at is None or exchange.sent_at is None else exchange.sent_at - done.due_at
        repeats = repetition(exchange.reader.text) if exchange.outcome.ok else None
        self._count(exchange, request.phase)
        if done.inside and exchange.reader.clock.tpot_s is not None:
            self.window_tpot.add(exchange.reader.clock.tpot_s)
        if request.phase == "measured":
            self._measure(exchange, late, repeats.unique_bigrams if repeats else None)
        reader, clock = exchange.reader, exchange.reader.clock
        row = RequestRecord(
            index=request.index,
            prompt_id=request.prompt.id,
            category=request.prompt.category,
            phase=request.phase,
            scheduled_at_s=done.due_at if done.scheduled else None,
            sent_at_s=exchange.sent_at,
            first_at_s=clock.first_at,
            last_at_s=clock.last_at if clock.chunks else None,
            ended_at_s=exchange.ended_at,
            lateness_s=late,
            connect_s=exchange.sent_at - exchange.started_at
            if exchange.connected and exchange.sent_at is not None
            else None,
            ttft_s=exchange.ttft_s,
            tpot_s=clock.tpot_s,
            e2e_s=exchange.e2e_s,
            prompt_tokens=reader.prompt_tokens,
            output_tokens=clock.total_tokens,
            first_chunk_tokens=clock.first_tokens,
            chunks=clock.chunks,
            token_source=clock.source,
            finish_reason=reader.finish_reason,
            status=exchange.status,
            outcome=exchange.outcome.value,
            error=exchange.error,
            text_sha256=reader.text_sha256,
            text=reader.text[:_TEXT_SAMPLE] if self._keep_text else "",
            unique_bigrams=repeats.unique_bigrams if repeats else None,
        )
        if self._origin is None:
            self._held.append(row)
        else:
            self._write(row)

    def _count(self, exchange: Exchange, phase: Phase) -> None:
        outcome = exchange.outcome
        (self.outcomes if phase == "measured" else self.unmeasured)[outcome] += 1
        if not outcome.ok and outcome is not Outcome.CANCELLED:
            texts = self.errors.setdefault(outcome, [])
            if len(texts) < _ERRORS_KEPT and exchange.error not in texts:
                texts.append(exchange.error)

    def _measure(self, exchange: Exchange, late: float | None, bigrams: float | None) -> None:
        if late is not None:
            self.lateness.add(late)
        if not exchange.outcome.ok:
            return
        clock = exchange.reader.clock
        self.sources[clock.source] += 1
        self.tokens += clock.total_tokens or 0
        self.prompt_tokens += exchange.reader.prompt_tokens or 0
        self.chunks += clock.chunks
        if bigrams is not None:
            self.bigrams.add(bigrams)
        for sketch, value in ((self.ttft, exchange.ttft_s), (self.tpot, clock.tpot_s), (self.e2e, exchange.e2e_s)):
            if value is not None:
                sketch.add(value)
        self.icl.add_all(clock.gaps_s)
        if clock.tpot_s is not None:
            self.trend.add(exchange.ended_at, clock.tpot_s)

    def _write(self, row: RequestRecord) -> None:
        fields = {name: getattr(row, name) for name in RequestRecord.__slots__}
        for name in ("scheduled_at_s", "sent_at_s", "first_at_s", "last_at_s", "ended_at_s"):
            if fields[name] is not None:
                fields[name] -= self._origin
        self._sink.write(orjson.dumps(fields) + b"\n")

    def flush(self) -> None:
        """Write rows that are still held back (a window that never opened), and flush."""
        if self._origin is None:
            self._origin = self._held[0].ended_at_s if self._held else 0.0
            self.open(self._origin)
        self._sink.flush()
