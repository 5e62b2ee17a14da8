"""However the process that started an engine ends, the engine does not stay behind, unless it was detached."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from outrider.runtime import ports, process_group
from outrider.runtime.base import State
from outrider.runtime.record import Record, entry, read_record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from outrider.engine.base import Launch
    from outrider.runtime.local import LocalRuntime

OWNER = Path(__file__).with_name("owner.py")
NAME = "small/baseline"


@pytest.fixture
def own(runtime: LocalRuntime) -> Iterator[Callable[[str, Launch], subprocess.Popen[str]]]:
    """Starts an owner process; those that a test leaves are ended."""
    owners: list[subprocess.Popen[str]] = []

    def begin(how: str, launch: Launch) -> subprocess.Popen[str]:
        order = json.dumps(dataclasses.asdict(launch))
        argv = [sys.executable, str(OWNER), how, str(runtime._state_dir), order]
        owners.append(subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        return owners[-1]

    yield begin
    for owner in owners:
        owner.kill()
        owner.communicate(timeout=60)  # longer than that, something still holds its pipes


def record_of(runtime: LocalRuntime) -> Record:
    record = read_record(entry(runtime._state_dir, NAME).record)
    assert record is not None
    return record


def nothing_left(record: Record) -> bool:
    return not process_group.lives(record.supervisor) and not process_group.members(record.run)


def said_waiting(owner: subprocess.Popen[str]) -> bool:
    assert owner.stdout is not None
    return owner.stdout.readline() == "waiting\n"


@pytest.mark.parametrize("how", ["serve", "while-starting", "detach-while-starting"])
def test_kill_9_of_the_owner_takes_the_engine_along(
    runtime: LocalRuntime,
    engine: Callable[..., Launch],
    own: Callable[[str, Launch], subprocess.Popen[str]],
    await_that: Callable[..., None],
    tmp_path: Path,
    how: str,
) -> None:
    gate = [] if how == "serve" else [f"gate={tmp_path / 'never'}"]
    owner = own(how, engine("ignore=SIGTERM", "fork=session", "fork=daemon", *gate))
    assert said_waiting(owner)
    record = record_of(runtime)
    await_that(lambda: len(process_group.members(record.run)) == 3, "engine and both descendants run")
    owner.kill()
    await_that(lambda: nothing_left(record), "everything is gone")
    await_that(lambda: record_of(runtime).because == "owner", "the cause is noted")
    assert ports.is_free(record.port)


def test_a_child_that_the_owner_forked_does_not_keep_the_engine_alive(
    runtime: LocalRuntime,
    engine: Callable[..., Launch],
    own: Callable[[str, Launch], subprocess.Popen[str]],
    await_that: Callable[..., None],
) -> None:
    owner = own("fork-and-serve", engine())
    assert owner.stdout is not None
    child = int(owner.stdout.readline())
    try:
        assert said_waiting(owner)
        record = record_of(runtime)
        owner.kill()
        await_that(lambda: nothing_left(record), "everything is gone")
        os.kill(child, 0)  # still there, with its copy of the pipe
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize(
    ("how", "number", "exit_code"),
    [
        ("serve", signal.SIGINT, -signal.SIGINT),
        ("while-starting", signal.SIGINT, -signal.SIGINT),
        ("unwind", signal.SIGTERM, 128 + signal.SIGTERM),
        ("unwind", signal.SIGHUP, 128 + signal.SIGHUP),
    ],
)
def test_an_orderly_end_of_the_owner_comes_after_the_engine_s(
    runtime: LocalRuntime,
    engine: Callable[..., Launch],
    own: Callable[[str, Launch], subprocess.Popen[str]],
    how: str,
    number: signal.Signals,
    exit_code: int,
) -> None:
    owner = own(how, engine("fork=daemon"))
    assert said_waiting(owner)
    owner.send_signal(number)
    _, complaints = owner.communicate(timeout=60)
    assert owner.returncode == exit_code, complaints
    assert nothing_left(record_of(runtime)), "at once, not a moment later"
    assert record_of(runtime).because == "stop"


def test_sigterm_without_unwinding_still_ends_the_engine(
    runtime: LocalRuntime,
    engine: Callable[..., Launch],
    own: Callable[[str, Launch], subprocess.Popen[str]],
    await_that: Callable[..., None],
) -> None:
    owner = own("serve", engine("fork=daemon"))
    assert said_waiting(owner)
    owner.terminate()
    await_that(lambda: nothing_left(record_of(runtime)), "everything is gone")


def test_an_owner_that_forgets_its_engine_ends_it_on_exit(
    runtime: LocalRuntime, engine: Callable[..., Launch], own: Callable[[str, Launch], subprocess.Popen[str]]
) -> None:
    owner = own("forget", engine())
    _, complaints = owner.communicate(timeout=60)
    assert owner.returncode == 0, complaints
    assert nothing_left(record_of(runtime))
    assert record_of(runtime).because == "stop", "by the owner itself, not because it was gone"


def test_a_detached_engine_goes_on_and_another_process_finds_and_stops_it(
    runtime: LocalRuntime, engine: Callable[..., Launch], own: Callable[[str, Launch], subprocess.Popen[str]]
) -> None:
    owner = own("detach", engine("fork=daemon"))
    _, complaints = owner.communicate(timeout=60)
    assert owner.returncode == 0, complaints
    status = runtime.status(NAME)
    assert (status.state, status.detached) == (State.READY, True)
    assert httpx.get(f"{status.url}/health").status_code == 200
    assert runtime.stop(NAME).state is State.ENDED
    assert nothing_left(record_of(runtime))
    assert record_of(runtime).exit_code == -signal.SIGTERM
