"""One load test in the load process: hands out requests, keeps the window, records what comes back."""

from __future__ import annotations

import resource
from collections import deque
from time import perf_counter, time
from typing import TYPE_CHECKING

import gevent
from gevent.event import Event

from outrider.load.client import Exchange, StreamClient
from outrider.load.histogram import Sketch
from outrider.load.in_flight import Admitted, Finished
from outrider.load.outcome import Outcome
from outrider.load.prompts import request_body
from outrider.load.window import Window

if TYPE_CHECKING:
    from collections.abc import Callable

    from outrider.load.engine_window import EngineWatch
    from outrider.load.plan import LoadPlan
    from outrider.load.recorder import Recorder
    from outrider.load.result import Phase
    from outrider.load.workloads import Prompt

_PROBE_S = 0.02


_BOOKS_BEHIND = 1000  # finished requests that may wait for a quiet moment


class LoadSession:
    """Shared by all users of one test.

    Args:
        plan: what to do.
        prompts: in sending order.
        client: sends requests.
        recorder: takes in finished requests.
        watch: reads the engine's metrics; None without an engine.
        report: called with each finished request and its phase (Locust events, exporter).

    Attributes:
        window: phases.
        gave_up: requests failed one after the other, so the test was ended early.
        tokens_in_window: output tokens that arrived in the window.
        cpu_s: CPU time of this process in the window.
        opened_unix: wall-clock time at which the window opened.
        lag: how late the event loop woke a sleeper, in the window.
        last_lag_s: the latest such value.
        started_at: time of the first request of any phase.
        sent, succeeded, failed: requests of all phases.
    """

    def __init__(
        self,
        plan: LoadPlan,
        prompts: tuple[Prompt, ...],
        client: StreamClient,
        recorder: Recorder,
        watch: EngineWatch | None,
        report: Callable[[Exchange, Phase], None],
    ) -> None:
        self.plan = plan
        self.window = Window(plan.warmup, plan.requests, plan.duration_s)
        self.client, self.recorder = client, recorder
        self.gave_up = False
        self.tokens_in_window = 0
        self.cpu_s = 0.0
        self.opened_unix: float | None = None
        self.lag = Sketch()
        self.last_lag_s = 0.0
        self.started_at: float | None = None
        self.sent = self.succeeded = self.failed = 0
        self._failed_in_a_row = 0
        self._crashed: BaseException | None = None
        self._finished: deque[Finished] = deque()
        self._to_book = Event()
        self._prompts = prompts
        self._bodies: dict[int, bytes] = {}
        self._watch = watch
        self._report = report
        self._open = Event()
        self._opening = False
        self._done = Event()
        self._closing = False
        self._warmups = 0
        self._measured = 0
        self._here = 0  # users that wait for the next wave
        self._wave = Event()
        self._busy_s = 0.0  # integral of requests in flight over the window
        self._busy_mark = 0.0

    def gather(self) -> None:
        """Wait until every user of the closed loop is here; the last one lets all go on together."""
        self._here += 1
        if self._here < (self.plan.concurrency or 1):
            self._wave.wait()
            return
        gone, self._wave, self._here = self._wave, Event(), 0
        gone.set()

    def admit(self) -> Admitted:
        """The next request, with its phase; blocks while the engine's counters are read for the window."""
        if not self._open.is_set() and self.window.opens_next:
            self.open()
        phase = self.window.admit(perf_counter())
        place = self._number(phase) % len(self._prompts)
        prompt = self._prompts[place]
        body = self._bodies.get(place)
        if body is None:
            body = self._bodies[place] = request_body(self.plan, prompt)
        self.sent += 1
        return Admitted(self.sent - 1, phase, prompt, body)

    def send(self, request: Admitted, due_at: float | None = None, *, scheduled: bool = False) -> Exchange:
        """Send one request and read its answer; blocks the user that calls it.

        Args:
            request: from `admit`.
            due_at: schedule (open loop) or end of the user's previous request (closed loop).
            scheduled: `due_at` is a schedule.
        """
        exchange = Exchange()
        now = perf_counter()
        if self.started_at is None:
            self.started_at = now
        if request.phase == "measured" and self.window.opened_at is None:
            self._mark_open(now)
        self._account(now)
        try:
            self.client.request(request.body, exchange)
        finally:
            self._account(perf_counter(), after=1)
            self.window.end(request.phase, exchange.ended_at)
            self._tally(exchange.outcome)
            inside = self.window.opened_at is not None and not self._closing
            self._finished.append(Finished(request, exchange, due_at, scheduled, inside))
            self._to_book.set()
        self._check_end()
        return exchange

    def _tally(self, outcome: Outcome) -> None:
        if outcome.ok:
            self.succeeded += 1
            self._failed_in_a_row = 0
        elif outcome is not Outcome.CANCELLED:
            self.failed += 1
            self._failed_in_a_row += 1

    def crash(self, error: BaseException) -> None:
        """A greenlet of the test died of an error in our own code: end the test, and let `wait` raise it."""
        if self._crashed is None:
            self._crashed = error
        self._closing = True
        self._done.set()

    def keep_books(self) -> None:
        """Record finished requests, for ever; run it in its own greenlet.

        It waits until nothing else is to be done: a user sends its next request first, and no token's
        arrival waits for statistics.
        """
        while True:
            self._to_book.wait()
            self._to_book.clear()
            while self._finished:
                if len(self._finished) < _BOOKS_BEHIND:
                    gevent.idle()
                self.book_next()

    def book_next(self) -> bool:
        """Record one finished request; False if there is none."""
        if not self._finished:
            return False
        done = self._finished.popleft()
        self.recorder.add(done)
        self._report(done.exchange, done.request.phase)
        return True

    def open(self) -> None:
        """Read the engine's counters before the first measured request; others wait for that."""
        if self._opening:
            self._open.wait()
            return
        self._opening = True
        if self._watch is not None:
            self._watch.open()
        self._open.set()

    def _mark_open(self, now: float) -> None:
        self.window.open(now)
        self.opened_unix = time()
        self.recorder.open(now)
        self.lag = Sketch()
        self._busy_mark = now
        self.tokens_in_window = -self.client.meter.tokens
        self.cpu_s = -_cpu_s()

    def _account(self, now: float, after: int = 0) -> None:
        """Add what was in flight since the last change."""
        if self.window.opened_at is None or self._closing:
            return
        self._busy_s += (self.client.meter.in_flight + after) * (now - self._busy_mark)
        self._busy_mark = now

    def _check_end(self) -> None:
        if self._closing:
            return
        hopeless = self._failed_in_a_row >= 5 + 2 * (self.plan.concurrency or 5)
        if hopeless and not self.window.closed(perf_counter()):
            self.gave_up = True
        elif not self.window.closed(perf_counter()):
            return
        self.close()

    def close(self) -> None:
        """The window is over: take the closing figures and let the main greenlet go on."""
        if self._closing:
            return
        self._account(perf_counter())
        self._closing = True
        if self.window.opened_at is not None:
            self.tokens_in_window += self.client.meter.tokens
            self.cpu_s += _cpu_s()
            if self._watch is not None:
                self._watch.close()
        self._done.set()

    def wait(self, timeout_s: float) -> bool:
        """Wait for the window's end; also closes a window whose duration is over and that has nothing left.

        Raises what a greenlet of the test died of.
        """
        if not self._done.wait(timeout_s):
            self._check_end()
        if self._crashed is not None:
            raise self._crashed
        return bool(self._done.is_set())

    @property
    def mean_in_flight(self) -> float:
        """Mean requests in flight over the window."""
        return self._busy_s / self.window.length_s if self.window.length_s > 0 else 0.0

    def probe_lag(self) -> None:
        """Measure the event loop's lag, for ever; run it in its own greenlet."""
        while True:
            before = perf_counter()
            gevent.sleep(_PROBE_S)
            self.last_lag_s = max(perf_counter() - before - _PROBE_S, 0.0)
            if not self._closing:
                self.lag.add(self.last_lag_s)

    def pause_after(self, exchange: Exchange, failures: int) -> None:
        """Hold a closed-loop user back after a request that failed at once, so that it does not spin."""
        if exchange.outcome is not Outcome.CANCELLED:
            gevent.sleep(min(0.01 * 2**failures, 1.0))

    def _number(self, phase: Phase) -> int:
        """Which prompt: measured requests from the front, warm-up from the back, so that it warms no cache."""
        if phase == "warmup":
            self._warmups += 1
            return -self._warmups
        self._measured += 1
        return self._measured - 1


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
