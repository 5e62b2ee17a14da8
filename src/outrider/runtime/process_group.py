"""Finding and ending every process of a run, including those that left its process group.

A run's processes are found in three ways, because each alone has a hole:

- descent from the supervisor, a child subreaper: orphans come back to it. Holds while it lives.
- the variable `OUTRIDER_RUN_ID` in `/proc/<pid>/environ`: survives new sessions, lost parents and a
  killed supervisor, but not a process that overwrites its environment to set its title.
- the engine's session: for a process whose environment has been overwritten in that way.

A process is named by PID *and* start time, so that a PID that was given to another process is never signalled.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

RUN_ID_VARIABLE = "OUTRIDER_RUN_ID"
KILL_WAIT_S = 10.0  # what the kernel may need to end a killed process that holds much memory
_LOOK_AGAIN_S = 0.05
_PROC = Path("/proc")
_ENVIRON_ENTRY = re.compile(rb"(?:^|\0)[A-Za-z_][A-Za-z0-9_]*=")


@dataclass(frozen=True, slots=True, order=True)
class ProcessRef:
    """One process for all time on this boot: its PID and its start in clock ticks since boot."""

    pid: int
    start_ticks: int


@dataclass(frozen=True, slots=True)
class ProcessRow:
    """What `/proc/<pid>/stat` says of a process.

    Attributes:
        ref: its identity.
        command: executable name, at most 15 characters.
        state: one letter: R running, S sleeping, D in the kernel and not to be interrupted, Z zombie, ...
        parent: parent's PID.
        session: session ID, which is the PID of the session's first process.
        threads: number of threads.
    """

    ref: ProcessRef
    command: str
    state: str
    parent: int
    session: int
    threads: int

    @property
    def lives(self) -> bool:
        """False for a zombie, which holds no memory and no port, unless other threads of it run on."""
        return self.state not in "ZX" or self.threads > 1


@dataclass(frozen=True, slots=True)
class Run:
    """What identifies the processes of a run.

    Attributes:
        run_id: value of `OUTRIDER_RUN_ID` in the engine's environment.
        supervisor: the process between us and the engine.
        engine: the engine's main process, which leads its own session.
    """

    run_id: str
    supervisor: ProcessRef
    engine: ProcessRef


def parse_stat(text: str) -> ProcessRow:
    """Read one `/proc/<pid>/stat` (proc_pid_stat(5)); the command may hold spaces and parentheses."""
    opening, closing = text.index("("), text.rindex(")")
    rest = text[closing + 2 :].split()
    return ProcessRow(
        ref=ProcessRef(int(text[:opening]), int(rest[19])),
        command=text[opening + 1 : closing],
        state=rest[0],
        parent=int(rest[1]),
        session=int(rest[3]),
        threads=int(rest[17]),
    )


def look_up(pid: int) -> ProcessRow | None:
    """The process that has this PID now."""
    try:
        return parse_stat((_PROC / str(pid) / "stat").read_text("utf-8", errors="replace"))
    except (FileNotFoundError, ProcessLookupError):
        return None


def this_process() -> ProcessRef:
    """The calling process."""
    row = look_up(os.getpid())
    if row is None:  # pragma: no cover - only where /proc is not mounted
        message = "/proc is not mounted"
        raise OSError(message)
    return row.ref


def lives(ref: ProcessRef) -> bool:
    """Whether this very process runs; a zombie does not."""
    row = look_up(ref.pid)
    return row is not None and row.ref == ref and row.lives


def process_table() -> dict[int, ProcessRow]:
    """All processes by PID."""
    rows = (look_up(int(entry)) for entry in os.listdir(_PROC) if entry.isdigit())  # noqa: PTH208 - names are enough
    return {row.ref.pid: row for row in rows if row is not None}


def descendants(table: Mapping[int, ProcessRow], root: int) -> set[int]:
    """PIDs below `root`, without it."""
    children: dict[int, list[int]] = {}
    for row in table.values():
        children.setdefault(row.parent, []).append(row.ref.pid)
    found: set[int] = set()
    open_ends = [root]
    while open_ends:
        for child in children.get(open_ends.pop(), ()):
            if child not in found:
                found.add(child)
                open_ends.append(child)
    return found


def _environ(pid: int) -> bytes | None:
    """Environment of a process; None if it is gone or another user's."""
    try:
        return (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return None


def members(run: Run) -> set[ProcessRef]:
    """Living processes of a run, without its supervisor and without the caller."""
    table = process_table()
    found: set[int] = set()
    for root in (run.supervisor, run.engine):
        if (row := table.get(root.pid)) and row.ref == root:
            found |= {root.pid} | descendants(table, root.pid)
    leader = table.get(run.engine.pid)
    session_is_ours = leader is None or leader.ref == run.engine
    marker = f"{RUN_ID_VARIABLE}={run.run_id}".encode()
    for pid, row in table.items():
        if pid in found or row.ref.start_ticks < run.supervisor.start_ticks:
            continue
        environ = _environ(pid)
        if environ is None:
            continue
        overwritten = not _ENVIRON_ENTRY.search(environ) and bool(environ)
        in_session = row.session == run.engine.pid and session_is_ours
        if marker in environ.split(b"\0") or (overwritten and in_session):
            found.add(pid)
    found -= {run.supervisor.pid, os.getpid()}
    return {table[pid].ref for pid in found if table[pid].lives}


def send(ref: ProcessRef, number: signal.Signals) -> None:
    """Signal this very process; nothing happens if it is gone or its PID has been given away."""
    with contextlib.suppress(ProcessLookupError):
        try:
            handle = os.pidfd_open(ref.pid)  # pins the PID between the check and the signal
        except OSError as error:
            if isinstance(error, ProcessLookupError):
                return
            if lives(ref):  # kernels before 5.3
                os.kill(ref.pid, number)
            return
        try:
            if lives(ref):
                signal.pidfd_send_signal(handle, number)
        finally:
            os.close(handle)


def wait_gone(ref: ProcessRef, timeout_s: float) -> bool:
    """Wait until a process has ended; True if it has, False after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    try:
        handle = os.pidfd_open(ref.pid)
    except OSError:
        handle = -1
    try:
        while lives(ref):
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            if handle >= 0:
                select.select([handle], [], [], left)
            else:
                time.sleep(min(left, _LOOK_AGAIN_S))
    finally:
        if handle >= 0:
            os.close(handle)
    return True


def end_all(
    find: Callable[[], set[ProcessRef]],
    *,
    grace_s: float,
    kill_wait_s: float = KILL_WAIT_S,
    pause: Callable[[float], None] = time.sleep,
) -> set[ProcessRef]:
    """Ask every process to end, wait, kill what is left, and look until nothing is found twice.

    Twice, because a process that forks and ends between the listing and the look at it hides its child
    from one look.

    Args:
        find: gives the processes that still live.
        grace_s: seconds between SIGTERM and SIGKILL.
        kill_wait_s: seconds that the kernel gets to carry SIGKILL out.
        pause: waits; the supervisor goes on collecting output and exit codes meanwhile.

    Returns:
        What could not be ended; empty if all is gone.
    """
    kill_at = time.monotonic() + grace_s
    asked: set[ProcessRef] = set()
    empty_looks = 0
    while empty_looks < 2:
        alive = find()
        empty_looks = 0 if alive else empty_looks + 1
        now = time.monotonic()
        if alive and now >= kill_at + kill_wait_s:
            return alive
        for ref in alive:
            if now >= kill_at:
                send(ref, signal.SIGKILL)
            elif ref not in asked:
                send(ref, signal.SIGTERM)
        asked |= alive
        if alive:
            pause(_LOOK_AGAIN_S)
    return set()


def describe(refs: Iterable[ProcessRef]) -> str:
    """Name processes for an error: PID, state and command line, one a line."""
    lines = []
    for ref in sorted(refs):
        row = look_up(ref.pid)
        if row is None or row.ref != ref:
            continue
        with contextlib.suppress(OSError):
            words = (_PROC / str(ref.pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            note = ", stuck in the kernel" if row.state == "D" else ""
            lines.append(f"pid {ref.pid} (state {row.state}{note}): {words.strip() or row.command}")
    return "\n".join(lines)


def bytes_read(refs: Iterable[ProcessRef]) -> int:
    """Bytes that these processes have read from storage so far, memory-mapped files included."""
    total = 0
    for ref in refs:
        with contextlib.suppress(OSError):
            for line in (_PROC / str(ref.pid) / "io").read_text().splitlines():
                if line.startswith("read_bytes:"):
                    total += int(line.split()[1])
    return total
