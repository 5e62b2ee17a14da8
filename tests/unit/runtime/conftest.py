"""Real processes for the runtime's tests, and waiting for them with a deadline."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from outrider.engine.base import Launch
from outrider.runtime import ports, process_group
from outrider.runtime.local import LocalRuntime

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CHILD = Path(__file__).with_name("engine_child.py")


def await_that(holds: Callable[[], object], what: str, timeout_s: float = 60.0) -> None:
    """Look until something holds; fail the test at the deadline."""
    deadline = time.monotonic() + timeout_s
    while not holds():
        if time.monotonic() > deadline:
            pytest.fail(f"never came true: {what}")
        time.sleep(0.01)


@pytest.fixture(name="await_that")
def _await_that() -> Callable[..., None]:
    return await_that


@pytest.fixture
def port() -> int:
    return ports.free_port()


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[LocalRuntime]:
    """A runtime with short times; whatever a failing test leaves is ended."""
    runtime = LocalRuntime(tmp_path / "state", fixed_s=60.0, stall_s=1.0, grace_s=1.0)
    yield runtime
    for path in (tmp_path / "state").rglob("record.json"):
        with contextlib.suppress(Exception):
            runtime.stop(str(path.parent.relative_to(tmp_path / "state")))


@pytest.fixture
def engine(port: int) -> Callable[..., Launch]:
    """Builds a launch of the small program; `serve` and `wait` are added unless told otherwise."""

    def build(*steps: str, serves: bool = True, **changes: object) -> Launch:
        ending = (f"serve={port}", "wait") if serves else ()
        argv = (sys.executable, "-S", str(CHILD), *steps, *ending)
        fields = {"argv": argv, "env": {}, "port": port, "health_path": "/health", "metrics_path": "/metrics"}
        return Launch(**{**fields, **changes})

    return build


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    """A process that is none of ours."""
    process = subprocess.Popen([sys.executable, "-S", str(CHILD), "wait"])
    yield process
    process.kill()
    process.wait()


def said_pid(lines: list[str], who: str) -> int | None:
    """PID that a descendant of the small program has printed."""
    for line in lines:
        if match := re.fullmatch(rf"{who} pid=(\d+)", line):
            return int(match[1])
    return None


@pytest.fixture
def pid_of(await_that: Callable[..., None]) -> Callable[[LocalRuntime, str, str], process_group.ProcessRef]:
    """Waits until a descendant has printed its PID; gives the process."""

    def find(runtime: LocalRuntime, name: str, who: str) -> process_group.ProcessRef:
        await_that(lambda: said_pid(list(runtime.log_lines(name)), who), f"{who} has started")
        row = process_group.look_up(said_pid(list(runtime.log_lines(name)), who) or 0)
        assert row is not None
        return row.ref

    return find
