"""The systemd runtime: a variant as a unit of the host's systemd.

    runtime = SystemdRuntime(state_dir(), stack)
    with runtime.start("smollm2-cpu/ngram", launch) as engine:
        measure(engine.url)

The unit file is rendered from the stack and written only if it differs; systemd reloads its files only then, because
a reload is not free on GPU nodes. What runs is asked of systemd. Needs root, or the rights that polkit gives.
"""

from __future__ import annotations

import contextlib
import pwd
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Self

import psutil

from outrider.errors import EngineError, RunsAlreadyError, RuntimeStateError
from outrider.runtime import diagnosis, ports, readiness
from outrider.runtime.base import State, Status
from outrider.runtime.lock import locked
from outrider.runtime.record import entry
from outrider.runtime.render_systemd import DIGEST_KEY, NAME_KEY, PORT_KEY, UnitOptions, unit_name, unit_text
from outrider.runtime.running import base_url
from outrider.runtime.starting import await_answer
from outrider.runtime.unit_state import UnitState, ending, facts_of, parse_show, unit_state

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

    from outrider.engine import Launch
    from outrider.runtime.base import Progress
    from outrider.stack import Stack

UNIT_DIR = Path("/etc/systemd/system")
_BOOTED = Path("/run/systemd/system")
_SHOWN = "ActiveState,SubState,MainPID,NRestarts,Result,ExecMainCode,ExecMainStatus,InvocationID"
_DEFAULTS = UnitOptions()


class Systemctl:
    """The edge to systemd.

    Raises:
        RuntimeStateError: this machine was not booted by systemd.
    """

    def __init__(self) -> None:
        if not _BOOTED.is_dir():
            raise RuntimeStateError(
                "systemd does not run this machine",
                evidence=f"{_BOOTED} is not there",
                next_step="serve with --runtime local or compose",
            )

    def run(self, *words: str, check: bool = True) -> str:
        """Run systemctl; raises RuntimeStateError with what it said."""
        done = subprocess.run(["systemctl", *words], capture_output=True, text=True, check=False)  # noqa: S607
        if check and done.returncode:
            raise RuntimeStateError(
                f"systemctl {' '.join(words[:2])} failed",
                evidence=(done.stderr or done.stdout).strip()[-400:],
                next_step="run as root, or see: journalctl -xe",
            )
        return done.stdout

    def state(self, unit: str) -> UnitState:
        """What systemd knows of a unit."""
        return parse_show(self.run("show", "--property", _SHOWN, unit))

    def journal(self, unit: str, last: int | None = None, invocation: str = "") -> list[str]:
        """Output of a unit; of one run of it, if `invocation` is given."""
        which = [f"_SYSTEMD_INVOCATION_ID={invocation}"] if invocation else ["--unit", unit]
        lines = ["--lines", "all" if last is None else str(last)]
        done = subprocess.run(
            ["journalctl", "--no-pager", "--quiet", "--output", "cat", *lines, *which],  # noqa: S607
            capture_output=True,
            text=True,
            check=False,
            errors="replace",
        )
        return done.stdout.splitlines()


class SystemdRuntime:
    """Starts, finds and stops engines as units; see `outrider.runtime.base.Runtime`."""

    def __init__(
        self,
        state_dir: Path,
        stack: Stack | None = None,
        options: UnitOptions = _DEFAULTS,
        *,
        unit_dir: Path = UNIT_DIR,
        fixed_s: float = readiness.FIXED_S,
    ) -> None:
        """Write units to `unit_dir`; `stack` is needed by `start` only."""
        self._state_dir = state_dir.absolute() / "systemd"
        self._stack = stack
        self._options = options
        self._unit_dir = unit_dir
        self._fixed_s = fixed_s
        self._systemd = Systemctl()

    def start(
        self,
        name: str,
        launch: Launch,
        *,
        host: str = "127.0.0.1",
        on_progress: Callable[[Progress], None] | None = None,
        detached: bool = False,  # noqa: ARG002 - a unit always outlives its starter
        labels: Mapping[str, str] | None = None,  # noqa: ARG002 - the unit carries its own
        weights: Sequence[Path] = (),
    ) -> UnitRunning:
        """Start a unit and wait until it answers; see `Runtime.start`."""
        stack_name, _, variant = name.rpartition("/")
        if self._stack is None or self._stack.name != stack_name:
            raise RuntimeStateError(f"{name} cannot be started without its stack")
        _require_user(self._options.user)
        files = entry(self._state_dir, name)
        files.create()
        with locked(files.lock, name):
            if (status := self.status(name)).state in {State.STARTING, State.READY}:
                raise RunsAlreadyError(
                    f"{name} runs already",
                    evidence=f"unit {unit_name(stack_name, variant)}, pid {status.pid}",
                    next_step=f"use it, or end it with: outrider stop {stack_name} {variant} --runtime systemd",
                )
            ports.require_free(launch.port, host)
            unit = unit_name(stack_name, variant)
            self._install(unit, unit_text(self._stack, variant, launch, self._options))
            running = UnitRunning(self._systemd, name, unit, base_url(host, launch.port))
            try:
                self._systemd.run("reset-failed", unit, check=False)
                self._systemd.run("start", "--no-block", unit)
                budget = readiness.budget_for(launch, weights, fixed_s=self._fixed_s)
                await_answer(running, launch, budget, on_progress=on_progress)
                self._systemd.run("start", unit)  # joins the start under way: returns once the gate has seen it too
            except BaseException:  # Ctrl-C included: nothing stays behind
                self._systemd.run("stop", unit, check=False)
                raise
        return running

    def status(self, name: str) -> Status:
        """What is known of a name."""
        stack_name, _, variant = name.rpartition("/")
        file = self._unit_dir / unit_name(stack_name, variant)
        try:
            written = facts_of(file.read_text(encoding="utf-8"))
        except OSError:
            return Status(name, State.ABSENT)
        found = self._systemd.state(file.name)
        state = unit_state(found)
        port = int(written.get(PORT_KEY, 0))
        return Status(
            name=name,
            state=state,
            url=base_url("127.0.0.1", port),
            pid=found.main_pid,
            port=port,
            labels={"stack_digest": written.get(DIGEST_KEY, "")},
            detached=True,
            ending=ending(found) if state is State.ENDED else None,
        )

    def list(self) -> tuple[Status, ...]:
        """Every name that has a unit here."""
        files = sorted(self._unit_dir.glob("outrider-*.service"))
        names = (facts_of(file.read_text(encoding="utf-8")).get(NAME_KEY) for file in files)
        return tuple(self.status(name) for name in names if name)

    def log_lines(self, name: str, last: int | None = None) -> Sequence[str]:
        """Output of a name's unit, from the journal."""
        stack_name, _, variant = name.rpartition("/")
        return self._systemd.journal(unit_name(stack_name, variant), last)

    def stop(self, name: str) -> Status:
        """End a name's unit; systemd ends its whole group. Harmless when nothing runs."""
        stack_name, _, variant = name.rpartition("/")
        if self.status(name).state is not State.ABSENT:
            self._systemd.run("stop", unit_name(stack_name, variant))
        return self.status(name)

    def _install(self, unit: str, text: str) -> None:
        path = self._unit_dir / unit
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            return
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise RuntimeStateError(
                "the unit cannot be written", evidence=f"{path}: {error.strerror}", next_step="run as root"
            ) from error
        self._systemd.run("daemon-reload")


def _require_user(user: str) -> None:
    """Refuse an account that does not exist, which systemd notices only when the unit starts."""
    try:
        pwd.getpwnam(user)
    except KeyError:
        raise RuntimeStateError(
            f"there is no user {user!r} to run the engine",
            next_step=f"useradd --system --shell /usr/sbin/nologin {user}, or give --user",
        ) from None


class UnitRunning:
    """An engine in a unit that this process started; see `outrider.runtime.base.Running`."""

    def __init__(self, systemd: Systemctl, name: str, unit: str, url: str) -> None:
        self._systemd = systemd
        self.name = name
        self.unit = unit
        self.url = url
        self._shown = 0
        self._before = systemd.state(unit).invocation
        self._invocation = ""

    @property
    def pid(self) -> int | None:
        """The unit's main process."""
        return self._systemd.state(self.unit).main_pid

    @property
    def log_file(self) -> Path | None:
        """None: the journal keeps the log."""
        return None

    @property
    def log_place(self) -> str:
        """The command that shows the whole log."""
        return f"journalctl --unit {self.unit}"

    def log_lines(self, last: int | None = None) -> Sequence[str]:
        """Output of this run, oldest first."""
        return self._systemd.journal(self.unit, last, self._invocation)

    def new_lines(self) -> list[str]:
        """Lines since the last call."""
        lines = list(self.log_lines())
        new, self._shown = lines[self._shown :], len(lines)
        return new

    def alive(self) -> bool:
        """Whether the engine that was started still runs: one that systemd started again is another."""
        found = self._systemd.state(self.unit)
        if not self._invocation:
            if found.invocation in {"", self._before}:
                return True  # the start is queued: what is shown is the run before
            self._invocation = found.invocation
        ended = found.sub == "auto-restart" or (found.main_pid is None and found.exit_code is not None)
        same = found.invocation == self._invocation
        return same and not ended and unit_state(found) in {State.STARTING, State.READY}

    def died_within(self, timeout_s: float) -> bool:
        """Wait for the engine's end, at most this long."""
        with contextlib.suppress(psutil.Error):
            if pid := self.pid:
                with contextlib.suppress(psutil.TimeoutExpired):
                    psutil.Process(pid).wait(timeout_s)
                return not self.alive()
        return not self.alive()

    def bytes_read(self) -> int:
        """Bytes that the unit's processes have read from storage; 0 where this user may not know."""
        with contextlib.suppress(psutil.Error, OSError):
            if pid := self.pid:
                first = psutil.Process(pid)
                return sum(int(p.io_counters().read_bytes) for p in (first, *first.children(recursive=True)))
        return 0

    def failure(self) -> EngineError | None:
        """Why it is not alive, with its last log lines; None while it lives."""
        if self.alive():
            return None
        found = self._systemd.state(self.unit)
        return diagnosis.explain(
            f"the engine of {self.name} ended",
            list(self.log_lines()),
            ending=ending(found) or "it ended, and systemd has started it again",
            code=found.exit_code,
            oom_kills=1 if found.result == "oom-kill" else 0,
            log=self.log_place,
        )

    def stop(self) -> None:
        """End the unit."""
        self._systemd.run("stop", self.unit)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
