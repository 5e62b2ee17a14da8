"""A local run: looking at it, ending it, and proving that it is gone."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import signal
import subprocess
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from outrider.errors import EngineError, RuntimeStateError
from outrider.runtime import diagnosis, ports, process_group
from outrider.runtime.lock import locked
from outrider.runtime.log import LogFollower, read_lines
from outrider.runtime.record import Entry, Record, read_record, write_record

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

_SUPERVISOR_MARGIN_S = 5.0
_PORT_WAIT_S = 5.0


class LocalRunning:
    """An engine that this process started; see `outrider.runtime.base.Running`."""

    def __init__(self, files: Entry, record: Record, supervisor: subprocess.Popen[bytes]) -> None:
        self._files = files
        self._record = record
        self._supervisor = supervisor
        self._owner_pid = os.getpid()
        self._follower = LogFollower(files.log)
        _foreground.add(self)

    @property
    def record(self) -> Record:
        """The run's record as last read."""
        return self._record

    @property
    def name(self) -> str:
        """`<stack>/<variant>`."""
        return self._record.name

    @property
    def url(self) -> str:
        """Base URL of the API."""
        return base_url(self._record.host, self._record.port)

    @property
    def pid(self) -> int:
        """The engine's main process."""
        return self._record.engine.pid

    @property
    def log_file(self) -> Path:
        """The log file that grows now."""
        return self._files.log

    def log_lines(self, last: int | None = None) -> list[str]:
        """The engine's output, oldest first."""
        return read_lines(self._files.log, last)

    @property
    def log_place(self) -> str:
        """Where the whole log is."""
        return str(self.log_file)

    def new_lines(self) -> list[str]:
        """Log lines since the last call."""
        return self._follower.new_lines()

    def bytes_read(self) -> int:
        """Bytes that the run's processes have read from storage."""
        return process_group.bytes_read(process_group.members(self._record.run))

    def died_within(self, timeout_s: float) -> bool:
        """Wait for the engine's end, at most this long."""
        return process_group.wait_gone(self._record.engine, timeout_s)

    def alive(self) -> bool:
        """Whether the engine's main process lives now."""
        return process_group.lives(self._record.engine)

    def failure(self) -> EngineError | None:
        """Why it is not alive; None while it lives. Waits until its workers are gone too."""
        if self.alive():
            return None
        self._await_supervisor()
        ended = self._latest()
        ending = diagnosis.describe_exit(ended.exit_code, because=ended.because, oom_kills=ended.oom_kills)
        return diagnosis.explain(
            f"the engine of {self.name} ended",
            self.log_lines(),
            ending=ending,
            code=ended.exit_code,
            oom_kills=ended.oom_kills,
            log=self.log_place,
        )

    def stop(self) -> None:
        """End it and prove that it is gone and its port free."""
        self._end(port_too=True)

    def abandon(self) -> None:
        """End a start that failed; its port may be another's by now, which would hide why it failed."""
        self._end(port_too=False)

    def _end(self, *, port_too: bool) -> None:
        try:
            end_run(self._files, self._latest(), port_too=port_too)
        finally:
            _foreground.discard(self)
        release(self._supervisor)

    def _latest(self) -> Record:
        """The record as it stands on disk, unless a later run has replaced it."""
        with contextlib.suppress(RuntimeStateError):
            on_disk = read_record(self._files.record)
            if on_disk is not None and on_disk.run_id == self._record.run_id:
                self._record = on_disk
        return self._record

    def _await_supervisor(self) -> None:
        limit = self._record.grace_s + process_group.KILL_WAIT_S + _SUPERVISOR_MARGIN_S
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._supervisor.wait(limit)

    def note_ready(self, *, detach: bool) -> bool:
        """Let the supervisor note that it answered; from then on a detached engine has no owner.

        Returns:
            Whether it has been noted; False if the run ends at this moment.
        """
        commands, answers = self._supervisor.stdin, self._supervisor.stdout
        if commands is None or answers is None:  # pragma: no cover - both are pipes
            return False
        with contextlib.suppress(BrokenPipeError):
            commands.write(json.dumps({"ready": True, "detach": detach}).encode() + b"\n")
            commands.flush()
        noted = bool(answers.readline())
        if noted and detach:
            _foreground.discard(self)
        return noted

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if os.getpid() == self._owner_pid:  # a child that was forked inside the block does not own the engine
            self.stop()


_foreground: set[LocalRunning] = set()


@atexit.register
def _stop_foreground() -> None:
    """End what a caller forgot; the supervisors would too, but only after we are gone."""
    for running in list(_foreground):
        with contextlib.suppress(RuntimeStateError), running:
            pass


def release(supervisor: subprocess.Popen[bytes]) -> None:
    """Let go of a supervisor: close our ends of its pipes, which tells it to end, and collect it."""
    for pipe in (supervisor.stdin, supervisor.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        supervisor.wait(_SUPERVISOR_MARGIN_S)


def base_url(host: str, port: int) -> str:
    """URL under which a server on `host:port` is reached from this machine."""
    reach = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared, not bound
    return f"http://[{reach}]:{port}" if ":" in reach else f"http://{reach}:{port}"


def end_run(files: Entry, record: Record, *, port_too: bool = True) -> None:
    """End every process of a run and prove it; harmless when it has ended.

    Args:
        files: where its record lies.
        record: the run.
        port_too: whether its port must be free afterwards; not asked of a run that had ended before.

    Raises:
        RuntimeStateError: a process or the port could not be freed; names them.
    """
    if not record.this_boot:
        return
    run = record.run
    was_running = record.ended_at is None
    if process_group.lives(run.supervisor):
        process_group.send(run.supervisor, signal.SIGTERM)
        process_group.wait_gone(run.supervisor, record.grace_s + process_group.KILL_WAIT_S + _SUPERVISOR_MARGIN_S)

    def left() -> set[process_group.ProcessRef]:
        supervisor = {run.supervisor} if process_group.lives(run.supervisor) else set()
        return process_group.members(run) | supervisor

    survivors = process_group.end_all(left, grace_s=record.grace_s)
    if survivors:
        raise RuntimeStateError(
            f"{record.name} could not be ended: {len(survivors)} process(es) survive SIGKILL",
            evidence=process_group.describe(survivors),
            next_step="a process in state D waits for a driver: reset the device or restart the node",
        )
    if was_running and port_too:
        _require_port_released(record)
    _write_ending(files, record)


def _require_port_released(record: Record) -> None:
    deadline = time.monotonic() + _PORT_WAIT_S
    while owners := ports.describe_owners(record.port, record.host):
        if time.monotonic() > deadline:
            raise RuntimeStateError(
                f"{record.name} is gone, but its port {record.port} is still held",
                evidence=owners,
                next_step="that process is not of this run: end it, or choose another port",
            )
        time.sleep(0.05)


def _write_ending(files: Entry, record: Record) -> None:
    """Note the end of a run whose supervisor was killed before it could."""
    with contextlib.suppress(RuntimeStateError, OSError):  # a full disk must not make a stop fail
        latest = read_record(files.record)
        if latest is not None and latest.run_id == record.run_id and latest.ended_at is None:
            with locked(files.lock, record.name):
                write_record(files.record, replace(latest, ended_at=time.time(), because="stop"))
