"""Starting, watching and stopping a process: what a caller of the local runtime can rely on."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from outrider.errors import EngineError, RuntimeStateError
from outrider.runtime import ports, process_group
from outrider.runtime.base import State
from outrider.runtime.local import LocalRuntime, _refuse_secrets
from outrider.runtime.record import entry, read_record, write_record

if TYPE_CHECKING:
    from collections.abc import Callable

    from outrider.engine.base import Launch
    from outrider.runtime.base import Progress

NAME = "small/baseline"


def processes_of(runtime: LocalRuntime) -> set[process_group.ProcessRef]:
    record = read_record(entry(runtime._state_dir, NAME).record)
    assert record is not None
    supervisor = {record.supervisor} if process_group.lives(record.supervisor) else set()
    return process_group.members(record.run) | supervisor


def test_start_answers_and_stop_leaves_nothing(runtime: LocalRuntime, engine: Callable[..., Launch], port: int) -> None:
    with runtime.start(NAME, engine(), labels={"stack": "abc"}) as running:
        assert httpx.get(f"{running.url}/health").status_code == 200
        assert running.alive()
        assert running.failure() is None
        status = runtime.status(NAME)
        assert (status.state, status.pid, status.port) == (State.READY, running.pid, port)
        assert status.labels == {"stack": "abc"}
    assert not running.alive()
    assert not processes_of(runtime)
    assert ports.is_free(port)
    assert runtime.status(NAME).state is State.ENDED


def test_stop_is_harmless_twice_and_for_a_name_that_never_ran(
    runtime: LocalRuntime, engine: Callable[..., Launch]
) -> None:
    running = runtime.start(NAME, engine())
    running.stop()
    running.stop()
    assert runtime.stop(NAME).state is State.ENDED
    assert runtime.stop("small/other").state is State.ABSENT
    assert runtime.status("small/other").state is State.ABSENT


def test_stop_does_not_care_who_has_the_port_once_the_run_has_ended(
    runtime: LocalRuntime, engine: Callable[..., Launch], port: int
) -> None:
    runtime.start(NAME, engine()).stop()
    with socket.create_server(("127.0.0.1", port)):
        runtime.stop(NAME)


@pytest.mark.parametrize("kind", ["plain", "session", "daemon"])
def test_stop_ends_descendants_that_ignore_sigterm(
    runtime: LocalRuntime,
    engine: Callable[..., Launch],
    pid_of: Callable[..., process_group.ProcessRef],
    kind: str,
) -> None:
    running = runtime.start(NAME, engine("ignore=SIGTERM", f"fork={kind}"))
    descendant = pid_of(runtime, NAME, kind)
    assert process_group.lives(descendant)
    running.stop()
    assert not process_group.lives(descendant)
    assert not processes_of(runtime)


def test_stop_ends_an_orphan_in_its_own_session_that_overwrote_its_environment(
    runtime: LocalRuntime, engine: Callable[..., Launch], pid_of: Callable[..., process_group.ProcessRef]
) -> None:
    running = runtime.start(NAME, engine("blank-environment", "fork=daemon"))
    daemon = pid_of(runtime, NAME, "daemon")
    running.stop()
    assert not process_group.lives(daemon), "the supervisor adopted it"


def test_an_engine_that_is_killed_is_noticed_and_its_workers_go(
    runtime: LocalRuntime, engine: Callable[..., Launch], pid_of: Callable[..., process_group.ProcessRef]
) -> None:
    running = runtime.start(NAME, engine("fork=plain", "fork=daemon"))
    workers = [pid_of(runtime, NAME, "plain"), pid_of(runtime, NAME, "daemon")]
    os.kill(running.pid, signal.SIGKILL)
    assert process_group.wait_gone(running.record.engine, 30.0)
    assert not running.alive()
    failure = running.failure()
    assert failure is not None
    assert "signal 9 (SIGKILL)" in str(failure)
    assert not any(map(process_group.lives, workers))
    assert "SIGKILL" in (runtime.status(NAME).ending or "")
    running.stop()


def test_a_killed_supervisor_takes_the_engine_along(
    runtime: LocalRuntime, engine: Callable[..., Launch], pid_of: Callable[..., process_group.ProcessRef]
) -> None:
    running = runtime.start(NAME, engine("fork=daemon"))
    daemon = pid_of(runtime, NAME, "daemon")
    os.kill(running.record.supervisor.pid, signal.SIGKILL)
    assert process_group.wait_gone(running.record.engine, 30.0), "the kernel sends it SIGTERM"
    assert runtime.status(NAME).state is State.LEFTOVER
    running.stop()
    assert not process_group.lives(daemon)
    assert runtime.status(NAME).state is State.ENDED


def test_stop_works_without_a_supervisor_on_an_engine_that_ignores_sigterm(
    runtime: LocalRuntime, engine: Callable[..., Launch], port: int
) -> None:
    running = runtime.start(NAME, engine("ignore=SIGTERM", "fork=session"))
    os.kill(running.record.supervisor.pid, signal.SIGKILL)
    assert process_group.wait_gone(running.record.supervisor, 30.0)
    assert running.alive()
    LocalRuntime(runtime._state_dir).stop(NAME)
    assert not processes_of(runtime)
    assert ports.is_free(port)


def test_a_start_clears_what_a_dead_run_left(
    runtime: LocalRuntime, engine: Callable[..., Launch], pid_of: Callable[..., process_group.ProcessRef]
) -> None:
    running = runtime.start(NAME, engine("fork=daemon"))
    daemon = pid_of(runtime, NAME, "daemon")
    os.kill(running.record.supervisor.pid, signal.SIGKILL)
    assert process_group.wait_gone(running.record.engine, 30.0)
    with runtime.start(NAME, engine()):
        assert not process_group.lives(daemon)


def test_a_pid_that_was_given_away_is_not_signalled(
    runtime: LocalRuntime, engine: Callable[..., Launch], stranger: subprocess.Popen[bytes]
) -> None:
    runtime.start(NAME, engine()).stop()
    record_file = entry(runtime._state_dir, NAME).record
    record = read_record(record_file)
    assert record is not None
    now = process_group.look_up(stranger.pid)
    assert now is not None
    earlier = process_group.ProcessRef(stranger.pid, now.ref.start_ticks - 1)
    write_record(record_file, replace(record, engine=earlier, supervisor=earlier, ended_at=None))
    runtime.stop(NAME)
    assert stranger.poll() is None


def test_a_taken_port_is_refused_before_anything_starts_and_its_owner_is_named(
    runtime: LocalRuntime, engine: Callable[..., Launch], port: int
) -> None:
    with socket.create_server(("127.0.0.1", port)), pytest.raises(RuntimeStateError) as caught:
        runtime.start(NAME, engine())
    assert f"pid {os.getpid()} of user" in caught.value.evidence
    assert "pytest" in caught.value.evidence
    assert "is free" in caught.value.next_step
    assert runtime.status(NAME).state is State.ABSENT


def test_an_answer_from_another_server_on_a_shared_port_is_not_taken_for_the_engine(
    runtime: LocalRuntime, engine: Callable[..., Launch], tmp_path: Path
) -> None:
    intruders: list[subprocess.Popen[bytes]] = []

    def intrude(_progress: Progress) -> None:
        if not intruders:
            intruders.append(subprocess.Popen(engine().argv))  # shares the port, as vLLM does

    try:
        with pytest.raises(RuntimeStateError, match="another server answers") as caught:
            runtime.start(NAME, engine(f"gate={tmp_path / 'never'}"), on_progress=intrude)
        assert f"pid {intruders[0].pid}" in str(caught.value)
        assert not processes_of(runtime)
    finally:
        for intruder in intruders:
            intruder.kill()
            intruder.wait()


def test_stop_names_who_still_holds_the_port(
    runtime: LocalRuntime, engine: Callable[..., Launch], port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outrider.runtime.running._PORT_WAIT_S", 0.1)
    running = runtime.start(NAME, engine())
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", port))
        other.listen()
        with pytest.raises(RuntimeStateError, match=f"pid {os.getpid()}"):
            running.stop()
    assert not processes_of(runtime)


def test_death_at_the_start_tells_the_cause_the_exit_code_and_the_last_lines(
    runtime: LocalRuntime, engine: Callable[..., Launch]
) -> None:
    lines = [f"print=line {i}" for i in range(20)]
    dying = engine(*lines, "print=ValueError: the moon is full", "fork=daemon", "exit=3", serves=False)
    with pytest.raises(EngineError) as caught:
        runtime.start(NAME, dying)
    assert "ValueError: the moon is full" in caught.value.cause
    assert "exit code 3" in caught.value.evidence
    assert "line 19" in caught.value.evidence
    assert "line 3\n" not in caught.value.evidence
    assert not processes_of(runtime)


def test_a_signal_at_the_start_is_named(runtime: LocalRuntime, engine: Callable[..., Launch]) -> None:
    with pytest.raises(EngineError, match="signal 11 \\(SIGSEGV\\)"):
        runtime.start(NAME, engine("kill=SIGSEGV", serves=False))


def test_a_missing_executable_is_named(runtime: LocalRuntime, engine: Callable[..., Launch]) -> None:
    with pytest.raises(EngineError, match="/no/such/python"):
        runtime.start(NAME, engine(argv=("/no/such/python", "-m", "engine")))
    assert runtime.status(NAME).state is State.ABSENT


@pytest.mark.quiet
def test_silence_beyond_the_budget_is_given_up(
    tmp_path: Path, runtime: LocalRuntime, engine: Callable[..., Launch]
) -> None:
    hasty = LocalRuntime(tmp_path / "state", fixed_s=2.0, stall_s=1.0, grace_s=1.0)
    seen: list[Progress] = []
    with pytest.raises(EngineError) as caught:
        hasty.start(NAME, engine("print=loading", f"gate={tmp_path / 'never'}"), on_progress=seen.append)
    assert seen[-1].elapsed_s < 5.9, "the engine's log of our own looks is no progress"
    assert "did not become ready" in caught.value.cause
    assert "budget of 2 s" in caught.value.evidence
    assert "HTTP 503" in caught.value.evidence
    assert not processes_of(runtime)


@pytest.mark.quiet
def test_repeating_one_message_is_no_progress(
    tmp_path: Path, runtime: LocalRuntime, engine: Callable[..., Launch]
) -> None:
    hasty = LocalRuntime(tmp_path / "state", fixed_s=2.0, stall_s=1.0, grace_s=1.0)
    seen: list[Progress] = []
    with pytest.raises(EngineError, match="did not become ready"):
        hasty.start(NAME, engine("chatter=same", serves=False), on_progress=seen.append)
    assert seen[-1].elapsed_s < 5.9, "before the hard limit of three budgets"


@pytest.mark.quiet
def test_a_slow_start_that_makes_progress_outlives_its_budget(
    tmp_path: Path, runtime: LocalRuntime, engine: Callable[..., Launch], port: int
) -> None:
    patient = LocalRuntime(tmp_path / "state", fixed_s=3.0, stall_s=3.0, grace_s=1.0)
    gate = tmp_path / "open"

    def open_late(progress: Progress) -> None:
        if progress.elapsed_s > 3.2:
            gate.touch()

    slow = engine(f"gate={gate}", f"serve={port}", "chatter=new", serves=False)
    with patient.start(NAME, slow, on_progress=open_late) as running:
        assert running.alive()


def test_progress_without_end_is_given_up_at_the_hard_limit(
    tmp_path: Path, runtime: LocalRuntime, engine: Callable[..., Launch]
) -> None:
    patient = LocalRuntime(tmp_path / "state", fixed_s=0.5, stall_s=60.0, grace_s=1.0)
    with pytest.raises(EngineError, match="did not become ready"):
        patient.start(NAME, engine("chatter=new", serves=False))


def test_progress_is_reported_from_log_patterns_and_the_second_start_knows_how_long_it_takes(
    runtime: LocalRuntime, engine: Callable[..., Launch], tmp_path: Path
) -> None:
    seen: list[Progress] = []

    def watch(progress: Progress) -> None:
        seen.append(progress)
        if progress.share == 0.75:
            (tmp_path / "open").touch()

    launch = engine(
        "print=hello", "print=shards: 50% done", f"gate={tmp_path / 'open'}",
        progress=(("hello", 0.5), (r"shards: (?P<percent>\d+)%", 1.0)),
    )  # fmt: skip
    with runtime.start(NAME, launch, on_progress=watch):
        pass
    assert any(progress.share == 0.75 for progress in seen)
    assert seen[-1].share == 1.0
    seen.clear()
    with runtime.start(NAME, launch, on_progress=watch):
        pass
    assert seen[0].eta_s is not None


def test_a_second_start_of_a_running_name_is_refused(runtime: LocalRuntime, engine: Callable[..., Launch]) -> None:
    with runtime.start(NAME, engine()) as running, pytest.raises(RuntimeStateError, match=f"pid {running.pid}"):
        runtime.start(NAME, engine())


def test_a_second_start_during_a_start_is_refused(runtime: LocalRuntime, engine: Callable[..., Launch]) -> None:
    refusals: list[RuntimeStateError] = []

    def start_again(_progress: Progress) -> None:
        with pytest.raises(RuntimeStateError) as caught:
            LocalRuntime(runtime._state_dir).start(NAME, engine())
        refusals.append(caught.value)

    with runtime.start(NAME, engine(), on_progress=start_again) as running:
        assert running.alive()
    assert f"pid {os.getpid()}" in refusals[0].evidence


def test_a_stop_from_elsewhere_ends_a_start(
    runtime: LocalRuntime, engine: Callable[..., Launch], tmp_path: Path
) -> None:
    with pytest.raises(EngineError, match="after it was asked to stop"):
        runtime.start(
            NAME,
            engine(f"gate={tmp_path / 'never'}"),
            on_progress=lambda _progress: LocalRuntime(runtime._state_dir).stop(NAME),
        )
    assert not processes_of(runtime)


def test_a_failing_progress_display_leaves_nothing_running(
    runtime: LocalRuntime, engine: Callable[..., Launch]
) -> None:
    def interrupt(_progress: Progress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        runtime.start(NAME, engine("ignore=SIGTERM"), on_progress=interrupt)
    assert not processes_of(runtime)


def test_the_environment_is_added_to_and_appears_in_no_file_or_command_line(
    runtime: LocalRuntime, engine: Callable[..., Launch], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTRIDER_TEST_INHERITED", "from-parent")
    launch = engine("environ=OUTRIDER_TEST_INHERITED", "environ=LENGTH", env={"API_KEY": "s3cr3t", "LENGTH": "9"})
    with runtime.start(NAME, launch) as running:
        assert {"OUTRIDER_TEST_INHERITED=from-parent", "LENGTH=9"} <= set(running.log_lines())
        for file in runtime._state_dir.rglob("*"):
            assert not file.is_file() or "s3cr3t" not in file.read_text()
        for ref in processes_of(runtime):
            assert b"s3cr3t" not in Path(f"/proc/{ref.pid}/cmdline").read_bytes()


@pytest.mark.parametrize("argument", ["--api-key", "--api_key=abc", "--hf-token", "--ssl-key-password=x"])
def test_a_secret_on_the_command_line_is_refused_without_showing_it(
    runtime: LocalRuntime, engine: Callable[..., Launch], argument: str
) -> None:
    with pytest.raises(RuntimeStateError, match="environment") as caught:
        runtime.start(NAME, engine(argument))
    assert "abc" not in str(caught.value)


@pytest.mark.parametrize("argument", ["--max-num-batched-tokens=8192", "--tokenizer=x", "--secretary"])
def test_ordinary_arguments_are_not_taken_for_secrets(argument: str) -> None:
    _refuse_secrets(["engine", argument])


def test_list_shows_every_name_in_order(runtime: LocalRuntime, engine: Callable[..., Launch]) -> None:
    runtime.start("small/ngram", engine()).stop()
    with runtime.start(NAME, engine()):
        assert [(it.name, it.state) for it in runtime.list()] == [
            (NAME, State.READY),
            ("small/ngram", State.ENDED),
        ]


@pytest.mark.parametrize("name", ["", "../x", "a/../b", "/etc", "a//b", "a/.b", "a b"])
def test_a_name_cannot_leave_the_state_directory(runtime: LocalRuntime, name: str) -> None:
    with pytest.raises(RuntimeStateError, match="cannot name a run"):
        runtime.status(name)


def test_a_chatty_engine_keeps_its_log_bounded_and_its_first_and_last_lines(
    tmp_path: Path, runtime: LocalRuntime, engine: Callable[..., Launch], await_that: Callable[..., None]
) -> None:
    small = LocalRuntime(tmp_path / "state", segment_bytes=50_000, grace_s=1.0)
    with small.start(NAME, engine("print=the very first", "flood=20000", "print=the very last")) as running:
        await_that(lambda: "the very last" in running.log_lines(40), "the last line arrives")
        assert running.log_lines()[0] == "the very first"
        kept = sum(file.stat().st_size for file in running.log_file.parent.glob("engine*.log"))
        assert kept < 3 * (50_000 + 65_536)
