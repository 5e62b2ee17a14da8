"""The process between us and an engine: it keeps the engine's log and exit code, and leaves nothing behind.

`python -P -m outrider.runtime.supervisor` reads one JSON line from standard input (see `Order`), starts the
engine, and answers one JSON line; then it obeys further lines. It is a child subreaper, so that orphans of
the run come back to it, and it ends the whole run when

- the engine's main process ends (workers that outlive their server hold the device's memory),
- it gets SIGTERM, SIGINT or SIGHUP,
- its owner is gone: the owner's pidfd says so even after `kill -9`, and so does the end of standard input.

The line `{"ready": true, "detach": true}` notes the first answer and makes it forget its owner. If the
supervisor itself is killed, the kernel sends the engine SIGTERM (PR_SET_PDEATHSIG).
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from outrider.runtime.log import BoundedLog
from outrider.runtime.process_group import (
    RUN_ID_VARIABLE,
    ProcessRef,
    end_all,
    lives,
    look_up,
    members,
    this_process,
)
from outrider.runtime.record import Record, boot_id, oom_kill_count, write_record

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_PR_SET_CHILD_SUBREAPER = 36
_CHUNK_BYTES = 65536
_LIBC = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Order:
    """What the starter asks for; sent through a pipe, because it carries the environment.

    Attributes:
        name: `<stack>/<variant>`.
        run_id: identifies the run's processes.
        argv: the engine's command.
        env: variables to set on top of the inherited environment.
        cwd: working directory.
        host: address that the engine listens on.
        port: its TCP port.
        labels: kept in the record.
        grace_s: seconds between SIGTERM and SIGKILL.
        owner_pid: PID of the starter.
        owner_start_ticks: its start.
        record: state file to write.
        log: log file to write.
        segment_bytes: size bound of one log file.
    """

    name: str
    run_id: str
    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: str
    host: str
    port: int
    labels: dict[str, str]
    grace_s: float
    owner_pid: int
    owner_start_ticks: int
    record: str
    log: str
    segment_bytes: int

    def to_line(self) -> bytes:
        """As one line of JSON."""
        return json.dumps(asdict(self)).encode() + b"\n"


def read_order(line: bytes) -> Order:
    """Read `to_line`'s output."""
    raw: dict[str, Any] = json.loads(line)
    return Order(**{**raw, "argv": tuple(raw["argv"])})


def _tie_to_supervisor() -> None:
    """In the engine, before exec: die with the supervisor. It is single-threaded, so `preexec_fn` is safe."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


class Supervisor:
    """One engine's life."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._oom_kills_before = oom_kill_count()
        self._ending: str | None = None  # why the run ends, once it does
        self._exit_code: int | None = None
        self._control_tail = b""
        self._output_open = True
        self._selector = selectors.DefaultSelector()
        self._owner_handle: int | None = None
        _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1)
        self._watch_signals()
        self._watch_owner()
        self._log = BoundedLog(Path(order.log), order.segment_bytes)
        self._record = self._spawn()

    def _watch_signals(self) -> None:
        self._wakeup, wakeup_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wakeup_end, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda _number, _frame: None)
        self._selector.register(self._wakeup, selectors.EVENT_READ, self._on_signal)

    def _watch_owner(self) -> None:
        os.set_blocking(0, False)
        self._selector.register(0, selectors.EVENT_READ, self._on_control)
        # Where there is no pidfd (kernels before 5.3) the end of standard input is all we have; a child that
        # the owner forked would keep that open.
        with contextlib.suppress(OSError):
            self._owner_handle = os.pidfd_open(self._order.owner_pid)
            self._selector.register(self._owner_handle, selectors.EVENT_READ, self._on_owner_gone)
        if not lives(ProcessRef(self._order.owner_pid, self._order.owner_start_ticks)):
            self._on_owner_gone()

    def _spawn(self) -> Record:
        order = self._order
        self._output, engine_end = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._output, False)
        # SPT_NOENV: vLLM's processes set their titles through setproctitle, which otherwise writes over the
        # environment that /proc shows, and with it over our marker.
        env = {**os.environ, **order.env, RUN_ID_VARIABLE: order.run_id, "SPT_NOENV": "1"}
        try:
            engine = subprocess.Popen(
                order.argv,
                env=env,
                cwd=order.cwd,
                stdin=subprocess.DEVNULL,
                stdout=engine_end,
                stderr=engine_end,
                start_new_session=True,
                preexec_fn=_tie_to_supervisor,  # noqa: PLW1509 - this process has one thread
            )
        finally:
            os.close(engine_end)
        engine.returncode = 0  # its exit code is collected by `_reap`, not by Popen
        row = look_up(engine.pid)
        if row is None:  # pragma: no cover - a zombie stays until `_reap`
            message = "the engine vanished"
            raise OSError(message)
        self._selector.register(self._output, selectors.EVENT_READ, self._on_output)
        record = Record(
            name=order.name,
            run_id=order.run_id,
            boot_id=boot_id(),
            supervisor=this_process(),
            engine=row.ref,
            argv=order.argv,
            host=order.host,
            port=order.port,
            grace_s=order.grace_s,
            labels=order.labels,
            started_at=time.time(),
        )
        try:
            write_record(Path(order.record), record)
        except OSError:
            os.kill(engine.pid, signal.SIGKILL)
            raise
        return record

    def _on_signal(self) -> None:
        with contextlib.suppress(BlockingIOError):
            numbers = set(os.read(self._wakeup, 512))
            if numbers - {signal.SIGCHLD}:
                self._ending = self._ending or "stop"
        self._reap()

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid == self._record.engine.pid:
                    self._exit_code = os.waitstatus_to_exitcode(status)
                    self._ending = self._ending or "engine"

    def _on_control(self) -> None:
        data = os.read(0, _CHUNK_BYTES)
        if not data:
            self._selector.unregister(0)
            if not self._record.detached:
                self._on_owner_gone()
            return
        *lines, self._control_tail = (self._control_tail + data).split(b"\n")
        for line in lines:
            self._obey(json.loads(line))

    def _obey(self, command: dict[str, Any]) -> None:
        self._save(ready_at=time.time(), detached=bool(command["detach"]))
        if self._record.detached and self._owner_handle is not None:
            self._selector.unregister(self._owner_handle)
            self._owner_handle = None
        _answer(noted=True)  # only now may a starter that detaches go away

    def _on_owner_gone(self) -> None:
        self._ending = self._ending or "owner"
        if self._owner_handle is not None:
            self._selector.unregister(self._owner_handle)
            self._owner_handle = None

    def _on_output(self) -> None:
        """Copy what there is; the pipe's end means that no process of the run holds it any more."""
        with contextlib.suppress(BlockingIOError):
            while self._output_open:
                data = os.read(self._output, _CHUNK_BYTES)
                self._log.write(data)
                if not data:
                    self._selector.unregister(self._output)
                    self._output_open = False
                if len(data) < _CHUNK_BYTES:
                    return  # look at signals and the owner before the next piece

    def _save(self, **changes: Any) -> None:
        self._record = replace(self._record, **changes)
        try:
            write_record(Path(self._order.record), self._record)
        except OSError as error:
            print(f"state is not written: {error}", file=sys.stderr, flush=True)

    def _pump(self, timeout_s: float | None) -> None:
        for key, _ in self._selector.select(timeout_s):
            key.data()

    def run(self) -> None:
        """Serve until the run ends, then end what is left of it."""
        try:
            while self._ending is None:
                self._pump(None)
        finally:
            end_all(lambda: members(self._record.run), grace_s=self._order.grace_s, pause=self._pump)
            self._reap()
            self._on_output()
            self._save(
                ended_at=time.time(),
                exit_code=self._exit_code,
                because=self._ending or "supervisor",
                oom_kills=oom_kill_count() - self._oom_kills_before,
            )
            self._log.close()


def _answer(**fields: object) -> None:
    with contextlib.suppress(OSError):
        os.write(1, json.dumps(fields).encode() + b"\n")


def _read_line() -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            return b""
        line += byte
    return line


def main() -> int:
    """Read the order, start the engine, answer, supervise."""
    line = _read_line()
    if not line:
        return 0  # the starter died before it asked for anything
    order = read_order(line)
    try:
        supervisor = Supervisor(order)
    except OSError as error:
        _answer(error=str(error), errno=error.errno)
        return 1
    _answer(started=True)
    supervisor.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
