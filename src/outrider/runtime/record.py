"""The state file of a run: what another process needs in order to find, judge and end it."""

from __future__ import annotations

import contextlib
import json
import os
import re
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from outrider.errors import RuntimeStateError
from outrider.runtime.process_group import ProcessRef, Run

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(?:/[A-Za-z0-9][A-Za-z0-9._-]*)*")


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a name's files lie: one directory, readable by its owner only (logs can hold prompts)."""

    directory: Path
    name: str

    @property
    def record(self) -> Path:
        """The state file."""
        return self.directory / "record.json"

    @property
    def lock(self) -> Path:
        """Locked during a start."""
        return self.directory / "lock"

    @property
    def log(self) -> Path:
        """The engine's output."""
        return self.directory / "engine.log"

    @property
    def supervisor_log(self) -> Path:
        """The supervisor's own complaints; normally empty."""
        return self.directory / "supervisor.log"

    def create(self) -> None:
        """Make the directory.

        Raises:
            RuntimeStateError: it cannot be made.
        """
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise RuntimeStateError(
                f"state of {self.name} cannot be kept",
                evidence=str(error),
                next_step="set OUTRIDER_STATE to a directory that you may write to, on a disk with room",
            ) from error


def entry(state_dir: Path, name: str) -> Entry:
    """The files of a name.

    Raises:
        RuntimeStateError: the name would not be a plain path below `state_dir`.
    """
    if not _NAME.fullmatch(name):
        raise RuntimeStateError(
            f"{name!r} cannot name a run",
            evidence="each part of <stack>/<variant> starts with a letter or digit; '.', '_', '-' may follow",
            next_step="rename the stack or the variant",
        )
    return Entry(state_dir / name, name)


@dataclass(frozen=True, slots=True)
class Record:
    """One run, as written to disk. It holds no environment: that is where secrets are.

    Attributes:
        name: `<stack>/<variant>`.
        run_id: value of `OUTRIDER_RUN_ID` in the engine's environment.
        boot_id: the kernel's boot ID; PIDs and start ticks mean nothing under another.
        supervisor: identity of the supervisor process.
        engine: identity of the engine's main process.
        argv: the engine's command.
        host: address that it listens on.
        port: its TCP port.
        grace_s: seconds between SIGTERM and SIGKILL.
        detached: whether it outlives its starter.
        labels: what the starter attached.
        started_at: Unix seconds.
        ready_at: Unix seconds of the first answer.
        ended_at: Unix seconds at which nothing of it was left.
        exit_code: of the engine's main process; the negative signal number if a signal ended it.
        because: what ended the run: `engine`, `stop`, `owner` or `supervisor`.
        oom_kills: processes that the kernel's OOM killer ended on this machine during the run.
    """

    name: str
    run_id: str
    boot_id: str
    supervisor: ProcessRef
    engine: ProcessRef
    argv: tuple[str, ...]
    host: str
    port: int
    grace_s: float
    detached: bool = False
    labels: dict[str, str] = field(default_factory=dict)
    started_at: float = 0.0
    ready_at: float | None = None
    ended_at: float | None = None
    exit_code: int | None = None
    because: str | None = None
    oom_kills: int = 0

    @property
    def run(self) -> Run:
        """What identifies its processes."""
        return Run(self.run_id, self.supervisor, self.engine)

    @property
    def this_boot(self) -> bool:
        """Whether the machine has not been restarted since."""
        return self.boot_id == boot_id()


def boot_id() -> str:
    """The kernel's identifier of this boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()


def oom_kill_count() -> int:
    """Processes that the OOM killer has ended since boot; 0 where the kernel does not count (before 4.13)."""
    for line in Path("/proc/vmstat").read_text("ascii").splitlines():
        if line.startswith("oom_kill "):
            return int(line.split()[1])
    return 0


def write_record(path: Path, record: Record) -> None:
    """Replace the state file as a whole: a reader sees the old one or the new one."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with draft.open("w", encoding="utf-8") as out:
            json.dump(asdict(record), out, indent=1)
            out.flush()
            os.fsync(out.fileno())
        draft.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise


def read_record(path: Path) -> Record | None:
    """Read a state file; None if there is none.

    Raises:
        RuntimeStateError: the file is not one of ours.
    """
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return None
    try:
        raw: dict[str, Any] = json.loads(text)
        raw["supervisor"] = ProcessRef(**raw["supervisor"])
        raw["engine"] = ProcessRef(**raw["engine"])
        raw["argv"] = tuple(raw["argv"])
        known = {f.name for f in fields(Record)}
        return Record(**{key: value for key, value in raw.items() if key in known})
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RuntimeStateError(
            "a run's state file cannot be read",
            evidence=f"{path}: {error!r}",
            next_step=f"look for its engine with `ps`, end it by hand, and delete {path.parent}",
        ) from error
