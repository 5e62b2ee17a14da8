"""Runs the training interpreter's programs: side by side, logged, watched, ended with us."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from outrider.train.errors import TrainError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_LIBC = ctypes.CDLL(None, use_errno=True)
_POLL_S = 0.5
_SAY_EVERY_S = 10.0
_GRACE_S = 60.0


@dataclass(frozen=True, slots=True)
class Job:
    """One program to run.

    Attributes:
        argv: its command.
        log: file that receives its output, appended.
    """

    argv: Sequence[str]
    log: Path


def _die_with_parent() -> None:
    """In the child, before exec: a client that outlives us would go on writing into a resumed run's files."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def run_all(
    jobs: Sequence[Job],
    env: Mapping[str, str],
    *,
    budget_s: float | None = None,
    watch: Callable[[float], None] | None = None,
) -> list[int | None]:
    """Run programs side by side until all have ended or the budget is spent.

    Args:
        jobs: what to run.
        env: variables on top of the inherited environment.
        budget_s: seconds after which what still runs gets SIGTERM.
        watch: called with the seconds since the start, about every ten seconds, for progress.

    Returns:
        Exit code of each job; None for those that the budget ended.
    """
    started = time.monotonic()
    running: list[subprocess.Popen[bytes]] = []
    said = started
    with contextlib.ExitStack() as stack:
        try:
            for job in jobs:
                log = stack.enter_context(job.log.open("ab"))
                running.append(
                    subprocess.Popen(
                        job.argv,
                        env={**os.environ, **env},
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=subprocess.STDOUT,
                        start_new_session=True,
                        preexec_fn=_die_with_parent,  # noqa: PLW1509 - nothing else runs in this process
                    )
                )
            while any(process.poll() is None for process in running):
                now = time.monotonic()
                if budget_s is not None and now - started > budget_s:
                    return _end(running)
                if watch and now - said >= _SAY_EVERY_S:
                    said = now
                    watch(now - started)
                _wait_a_moment(running)
        except BaseException:
            _end(running)
            raise
    return [process.returncode for process in running]


def _wait_a_moment(running: list[subprocess.Popen[bytes]]) -> None:
    alive = next(process for process in running if process.poll() is None) if running else None
    if alive is not None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            alive.wait(_POLL_S)


def _end(running: list[subprocess.Popen[bytes]]) -> list[int | None]:
    """SIGTERM to what runs, SIGKILL after a grace; the codes of what had ended by itself."""
    codes = [process.poll() for process in running]
    for process in running:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
    deadline = time.monotonic() + _GRACE_S
    for process in running:
        try:
            process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return codes


def last_lines(path: Path, count: int = 12) -> str:
    """The end of a log, for error messages."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "(no log)"
    return "\n".join(text.replace("\r", "\n").rstrip().splitlines()[-count:])


def require_success(stage: str, jobs: Sequence[Job], codes: Sequence[int | None]) -> None:
    """Raise for the first job that failed; one that the budget ended is no failure.

    Raises:
        TrainError: with the end of its log.
    """
    for job, code in zip(jobs, codes, strict=True):
        if code not in {0, None}:
            raise TrainError(
                f"stage {stage} failed with exit code {code}",
                evidence=f"{job.log}:\n{last_lines(job.log)}",
                next_step="mend the cause and run the same command again; finished work is kept",
            )
