"""The load process: `python -m outrider.load.worker`, started by `run_load`.

Locust patches the standard library for gevent when it is imported, so it lives in a process of its own. The
plan comes as one JSON line on standard input, which then stays open: its end means that the parent is gone.
Progress and result leave as JSON lines on standard output; everything else goes to standard error.
"""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, BinaryIO

import gevent
import locust
import orjson
from gevent.socket import wait_read
from locust.env import Environment

from outrider.engine import adapter
from outrider.errors import OutriderError
from outrider.load.api_key import read_api_key
from outrider.load.arrivals import schedule
from outrider.load.assemble import assemble
from outrider.load.client import Exchange, StreamClient
from outrider.load.connection import Address
from outrider.load.engine_window import EngineWatch
from outrider.load.locust_rows import fire_rows
from outrider.load.plan import LoadPlan
from outrider.load.prompts import workload_of
from outrider.load.recorder import Recorder
from outrider.load.session import LoadSession
from outrider.runtime import discovery

if TYPE_CHECKING:
    from outrider.load.exporter import Exporter
    from outrider.load.result import Phase

_PROGRESS_S = 0.5


class ClosedUser(locust.User):  # type: ignore[misc]
    """Sends its next request when the previous one ended."""

    abstract = True
    session: LoadSession

    def on_start(self) -> None:
        """Nothing was sent before."""
        self._ended_at: float | None = None
        self._failures = 0

    @locust.task  # type: ignore[untyped-decorator]
    def request(self) -> None:
        """One request."""
        if self.session.plan.in_waves:
            self.session.gather()
            self._ended_at = None  # the wait for the others is no lateness
        exchange = self.session.send(self.session.admit(), self._ended_at)
        self._ended_at = exchange.ended_at
        if exchange.outcome.ok:
            self._failures = 0
        else:
            self._failures += 1
            self.session.pause_after(exchange, self._failures)
            self._ended_at = None


class OpenUser(locust.User):  # type: ignore[misc]
    """Sends on a schedule, whatever is still under way."""

    abstract = True
    session: LoadSession

    @locust.task  # type: ignore[untyped-decorator]
    def arrive(self) -> None:
        """Walk through the whole schedule."""
        session = self.session
        under_way: set[gevent.Greenlet] = set()
        try:
            start = perf_counter()
            for offset in schedule(session.plan.arrivals, session.plan.prompt_seed):
                if session.window.opens_next:
                    before = perf_counter()
                    session.open()
                    start += perf_counter() - before  # the schedule waits for the engine's first reading
                due_at = start + offset
                gevent.sleep(max(due_at - perf_counter(), 0))
                sender = gevent.spawn(session.send, session.admit(), due_at, scheduled=True)
                under_way.add(sender)
                sender.link(under_way.discard)
                sender.link_exception(lambda dead: session.crash(dead.exception))
            session.window.exhaust()
            gevent.joinall(list(under_way))
            session.close()
            gevent.sleep(float("inf"))
        finally:
            gevent.killall(list(under_way))


def main() -> int:
    """Run the plan on standard input; 0 when a result was written."""
    channel = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # what libraries print must not mix with our lines
    order = orjson.loads(sys.stdin.buffer.readline())
    gevent.spawn(_die_with_parent)
    try:
        plan = LoadPlan.model_validate(order["plan"])
        with Path(order["records"]).open("wb", buffering=64 * 1024) as sink:
            result = _run(plan, sink, channel)
    except OSError as error:
        cause = f"rows cannot be written: {error.strerror}"
        _write(channel, {"error": {"cause": cause, "evidence": str(order["records"]), "next_step": ""}})
        return 1
    except OutriderError as error:
        _write(channel, {"error": {"cause": error.cause, "evidence": error.evidence, "next_step": error.next_step}})
        return 1
    _write(channel, {"result": result})
    return 0


def _run(plan: LoadPlan, sink: BinaryIO, channel: BinaryIO) -> dict[str, Any]:
    workload = workload_of(plan)
    client = StreamClient(
        plan.url,
        plan.endpoint,
        api_key=read_api_key(plan.api_key_file),
        idle_timeout_s=plan.idle_timeout_s,
        connect_timeout_s=plan.connect_timeout_s,
    )
    watch = None
    if plan.engine is not None:
        watch = EngineWatch(adapter(plan.engine), Address.of(plan.url), plan.metrics_path)
    user = ClosedUser if plan.concurrency is not None else OpenUser
    environment = Environment(user_classes=[type(user.__name__, (user,), {})], host=plan.url)

    exporter, target = _exporter(plan, client)

    def report(exchange: Exchange, _phase: Phase) -> None:
        fire_rows(environment.events, plan.endpoint, exchange)
        if exporter is not None:
            exporter.observe(exchange)

    recorder = Recorder(sink, keep_text=plan.keep_text)
    session = LoadSession(plan, workload.prompts, client, recorder, watch, report)
    environment.user_classes[0].session = session
    runner = environment.create_local_runner()
    gevent.spawn(session.probe_lag)
    gevent.spawn(session.keep_books).link_exception(lambda dead: session.crash(dead.exception))
    environment.events.user_error.add_listener(lambda exception, **_: session.crash(exception))
    gc.collect()
    gc.freeze()  # what exists now lives to the end: collections need not look at it again
    gc.set_threshold(50_000, 20, 50)
    users = plan.concurrency or 1
    runner.start(users, spawn_rate=users)
    tokens, at = 0, perf_counter()
    try:
        while not session.wait(_PROGRESS_S):
            now = perf_counter()
            _write(channel, {"progress": _progress(session, (client.meter.tokens - tokens) / (now - at))})
            tokens, at = client.meter.tokens, now
            if exporter is not None:
                exporter.refresh(session.last_lag_s)
    finally:
        if target is not None:
            discovery.drop(target)
    runner.quit()
    client.close()
    while session.book_next():
        pass
    recorder.flush()
    return assemble(session, watch, workload).model_dump(mode="json")


def _exporter(plan: LoadPlan, client: StreamClient) -> tuple[Exporter | None, discovery.Target | None]:
    """The exporter, and the target that tells Prometheus of it."""
    if plan.metrics_port is None:
        return None, None
    from outrider.load.exporter import Exporter  # noqa: PLC0415 - costs start-up time, rarely asked for

    exporter = Exporter(plan, client.meter)
    target = discovery.client_target(exporter.serve(plan.metrics_port))
    discovery.publish(target)
    return exporter, target


def _progress(session: LoadSession, tokens_s: float) -> dict[str, Any]:
    recorder, window = session.recorder, session.window
    done = sum(recorder.outcomes.values()) + sum(recorder.unmeasured.values())
    return {
        "phase": "warmup" if window.opened_at is None else "measured",
        "elapsed_s": perf_counter() - session.started_at if session.started_at is not None else 0.0,
        "sent": session.sent,
        "done": done,
        "failed": session.failed,
        "measured": window.ended,
        "in_flight": session.client.meter.in_flight,
        "tokens": session.client.meter.tokens,
        "tokens_s": tokens_s,
        "ttft_p50_s": recorder.ttft.quantile(0.5),
        "tpot_p50_s": recorder.tpot.quantile(0.5),
    }


def _write(channel: BinaryIO, message: dict[str, Any]) -> None:
    channel.write(orjson.dumps(message) + b"\n")


def _die_with_parent() -> None:
    while True:
        wait_read(0)
        if not os.read(0, 4096):
            os._exit(70)


if __name__ == "__main__":
    sys.exit(main())
