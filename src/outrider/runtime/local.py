"""The local runtime: an engine as a supervised process of this machine.

Between us and the engine stands a small supervisor process (`supervisor.py`) that collects output and exit
code and ends the whole run when the engine ends, when it is told to, or when its owner dies. State lies in
`<state_dir>/<name>/`, so `status` and `stop` work from any process of the same user.

    runtime = LocalRuntime(Path("~/.local/state/outrider").expanduser())
    with runtime.start("smollm2-cpu/ngram", launch, on_progress=show) as engine:
        measure(engine.url)
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import uuid
from typing import TYPE_CHECKING

from outrider.errors import EngineError, RunsAlreadyError, RuntimeStateError
from outrider.runtime import diagnosis, ports, process_group, readiness
from outrider.runtime.base import State, Status
from outrider.runtime.lock import locked
from outrider.runtime.log import SEGMENT_BYTES, read_lines
from outrider.runtime.record import Entry, Record, entry, read_record
from outrider.runtime.running import LocalRunning, base_url, end_run, release
from outrider.runtime.starting import await_answer
from outrider.runtime.supervisor import Order

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from outrider.engine.base import Launch
    from outrider.runtime.base import Progress

GRACE_S = 20.0  # vLLM's CPU build needs 1-2 s; eight workers that release device memory need several
_SECRET_ARGUMENT = re.compile(r"--(api[-_]key|hf[-_]token|[\w-]*(password|secret))(=.*)?", re.IGNORECASE)


class LocalRuntime:
    """Starts, finds and stops engines on this machine; see `outrider.runtime.base.Runtime`."""

    def __init__(
        self,
        state_dir: Path,
        *,
        fixed_s: float = readiness.FIXED_S,
        bandwidth: float | None = None,
        stall_s: float = readiness.STALL_S,
        grace_s: float = GRACE_S,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        """Keep state in `state_dir`.

        Args:
            state_dir: directory for state and logs; created when needed.
            fixed_s: the part of a start's budget that does not depend on the weights.
            bandwidth: bytes per second at which weights are read; measured, or else assumed, if None.
            stall_s: seconds without progress after which a start that is over its budget is given up.
            grace_s: seconds between SIGTERM and SIGKILL at a stop.
            segment_bytes: size bound of one log file, of which a run has up to three.
        """
        self._state_dir = state_dir.absolute()
        self._fixed_s = fixed_s
        self._bandwidth = bandwidth
        self._stall_s = stall_s
        self._grace_s = grace_s
        self._segment_bytes = segment_bytes

    def start(
        self,
        name: str,
        launch: Launch,
        *,
        host: str = "127.0.0.1",
        on_progress: Callable[[Progress], None] | None = None,
        detached: bool = False,
        labels: Mapping[str, str] | None = None,
        weights: Sequence[Path] = (),
    ) -> LocalRunning:
        """Start an engine and wait until it answers; see `Runtime.start`."""
        _refuse_secrets(launch.argv)
        files = entry(self._state_dir, name)
        files.create()
        with locked(files.lock, name):
            expected_s = self._clear_way(files)
            ports.require_free(launch.port, host)
            budget = readiness.budget_for(
                launch, weights, fixed_s=self._fixed_s, bandwidth=self._bandwidth, stall_s=self._stall_s
            )
            running = self._spawn(files, launch, host, dict(labels or {}))
            try:
                await_answer(running, launch, budget, expected_s=expected_s, on_progress=on_progress)
                self._require_ours(running, launch.port)
                self._note_ready(running, files, detach=detached)
            except BaseException:  # Ctrl-C included: nothing stays behind
                running.abandon()
                raise
        return running

    def status(self, name: str) -> Status:
        """What is known of a name."""
        files = entry(self._state_dir, name)
        record = read_record(files.record)
        return Status(name, State.ABSENT) if record is None else _status(files, record)

    def list(self) -> tuple[Status, ...]:
        """Every name that was ever started here, in order of name."""
        names = (path.parent.relative_to(self._state_dir) for path in self._state_dir.rglob("record.json"))
        return tuple(self.status(name) for name in sorted(map(str, names)))

    def log_lines(self, name: str, last: int | None = None) -> Sequence[str]:
        """Output of the latest run under a name."""
        return read_lines(entry(self._state_dir, name).log, last)

    def stop(self, name: str) -> Status:
        """End a name's engine and prove that it is gone; harmless when nothing runs."""
        files = entry(self._state_dir, name)
        if (record := read_record(files.record)) is not None:
            end_run(files, record)
        return self.status(name)

    def _clear_way(self, files: Entry) -> float | None:
        """Refuse a name that runs, end what a dead run left; gives the duration of the last start."""
        record = read_record(files.record)
        if record is None:
            return None
        status = _status(files, record)
        if status.state in {State.STARTING, State.READY}:
            raise RunsAlreadyError(
                f"{files.name} runs already",
                evidence=f"pid {status.pid} on {status.url}, started by an earlier command",
                next_step=f"use it, or end it with: outrider stop {files.name.replace('/', ' ')}",
            )
        if status.state is State.LEFTOVER:
            end_run(files, record)
        return None if record.ready_at is None else record.ready_at - record.started_at

    def _spawn(self, files: Entry, launch: Launch, host: str, labels: dict[str, str]) -> LocalRunning:
        owner = process_group.this_process()
        order = Order(
            name=files.name,
            run_id=uuid.uuid4().hex,
            argv=launch.argv,
            env=dict(launch.env),
            cwd=os.getcwd(),  # noqa: PTH109 - a string for JSON
            host=host,
            port=launch.port,
            labels=labels,
            grace_s=self._grace_s,
            owner_pid=owner.pid,
            owner_start_ticks=owner.start_ticks,
            record=str(files.record),
            log=str(files.log),
            segment_bytes=self._segment_bytes,
        )
        with files.supervisor_log.open("wb") as complaints:
            supervisor = subprocess.Popen(
                [sys.executable, "-P", "-m", "outrider.runtime.supervisor"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=complaints,
                start_new_session=True,  # Ctrl-C in our terminal is for us; we tell it in our own time
            )
        try:
            answer = _converse(supervisor, order)
        except BaseException:  # Ctrl-C before the engine is known to us: its supervisor ends it
            release(supervisor)
            raise
        record = read_record(files.record)
        if "started" not in answer or record is None or record.run_id != order.run_id:
            release(supervisor)
            raise EngineError(
                f"the engine of {files.name} could not be started",
                evidence=str(answer.get("error") or files.supervisor_log.read_text(errors="replace").strip()),
                next_step=f"check that {launch.argv[0]} exists and may be executed, and that the disk is not full",
            )
        return LocalRunning(files, record, supervisor)

    def _note_ready(self, running: LocalRunning, files: Entry, *, detach: bool) -> None:
        if not running.note_ready(detach=detach):
            raise running.failure() or EngineError(
                f"the supervisor of {files.name} ended while the engine was starting",
                evidence=files.supervisor_log.read_text(errors="replace").strip() or "it was killed: no last words",
                next_step="start again; if it happens twice, look for what ends processes of this user",
            )

    def _require_ours(self, running: LocalRunning, port: int) -> None:
        """Make sure that the answer came from this run: a port can be shared, or taken during the start."""
        met = [it for it in ports.listeners(port) if ports.conflicts(it, running.record.host)]
        ours = {ref.pid for ref in process_group.members(running.record.run)}
        if strangers := set(ports.holders(met).values()) - ours:
            raise RuntimeStateError(
                f"another server answers on port {port} beside the engine of {running.name}",
                evidence=ports.describe_owners(port, running.record.host),
                next_step=f"end pid {', '.join(map(str, sorted(strangers)))}, or choose another port",
            )


def _status(files: Entry, record: Record) -> Status:
    if not record.this_boot:
        state = State.ENDED
    elif process_group.lives(record.engine):
        state = State.STARTING if record.ready_at is None else State.READY
    else:
        state = State.LEFTOVER if process_group.members(record.run) else State.ENDED
    ending = None
    if state is State.ENDED and not record.this_boot and record.ended_at is None:
        ending = "the machine was restarted"
    elif state in {State.ENDED, State.LEFTOVER}:
        ending = diagnosis.describe_exit(record.exit_code, because=record.because, oom_kills=record.oom_kills)
    return Status(
        name=record.name,
        state=state,
        url=base_url(record.host, record.port),
        pid=record.engine.pid,
        port=record.port,
        argv=record.argv,
        labels=record.labels,
        detached=record.detached,
        started_at=record.started_at,
        ready_at=record.ready_at,
        ended_at=record.ended_at,
        ending=ending,
        log_file=files.log,
    )


def _converse(supervisor: subprocess.Popen[bytes], order: Order) -> dict[str, object]:
    """Send the order, read the one line of answer; empty if the supervisor broke."""
    if supervisor.stdin is None or supervisor.stdout is None:  # pragma: no cover - both are pipes
        return {}
    with contextlib.suppress(BrokenPipeError):
        supervisor.stdin.write(order.to_line())
        supervisor.stdin.flush()
    line = supervisor.stdout.readline()
    if not line:
        return {}
    answer: dict[str, object] = json.loads(line)
    return answer


def _refuse_secrets(argv: Sequence[str]) -> None:
    for argument in argv:
        if match := _SECRET_ARGUMENT.fullmatch(argument):
            raise RuntimeStateError(
                f"--{match[1]} does not belong on a command line, which every user of the machine can read",
                evidence=f"argv[{argv.index(argument)}]",
                next_step="pass it in the environment (vLLM reads VLLM_API_KEY and HF_TOKEN)",
            )
