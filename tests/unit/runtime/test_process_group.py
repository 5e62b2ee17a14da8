"""Finding and ending processes: the pure parts, and what happens at their edges with real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.runtime import process_group
from outrider.runtime.process_group import ProcessRef, ProcessRow, Run

CHILD = Path(__file__).with_name("engine_child.py")


@given(
    command=st.text(st.characters(codec="utf-8", exclude_characters="\n\0"), max_size=15),
    pid=st.integers(1, 2**22),
)
def test_a_command_name_of_any_shape_does_not_upset_the_reading_of_a_process(command: str, pid: int) -> None:
    line = f"{pid} ({command}) S 7 8 9 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 21 0 4711 1000 200 18446744073709551615"
    row = process_group.parse_stat(line)
    assert row == ProcessRow(ProcessRef(pid, 4711), command, "S", parent=7, session=9, threads=21)


def test_the_kernel_s_own_line_is_read_right() -> None:
    row = process_group.look_up(os.getpid())
    assert row is not None
    assert row.parent == os.getppid()
    assert row.session == os.getsid(0)


def test_a_zombie_does_not_live_unless_another_thread_of_it_does() -> None:
    zombie = ProcessRow(ProcessRef(5, 1), "x", "Z", parent=1, session=5, threads=1)
    assert not zombie.lives
    assert ProcessRow(zombie.ref, "x", "Z", parent=1, session=5, threads=2).lives


def test_descendants_are_found_over_generations_and_without_strangers() -> None:
    parents = {2: 1, 3: 2, 4: 3, 5: 1, 6: 5}
    table = {pid: ProcessRow(ProcessRef(pid, 0), "x", "S", parent, pid, 1) for pid, parent in parents.items()}
    assert process_group.descendants(table, 2) == {3, 4}


def test_an_unreaped_child_counts_as_gone() -> None:
    child = subprocess.Popen([sys.executable, "-S", "-c", ""])
    row = process_group.look_up(child.pid)
    assert row is not None
    assert process_group.wait_gone(row.ref, 10.0)
    assert Path(f"/proc/{child.pid}").exists(), "nobody has collected it yet"
    child.wait()


def test_wait_gone_gives_up_at_its_time(stranger: subprocess.Popen[bytes]) -> None:
    row = process_group.look_up(stranger.pid)
    assert row is not None
    assert not process_group.wait_gone(row.ref, 0.05)


def test_a_signal_goes_to_the_process_that_was_meant_and_to_no_later_owner_of_its_pid(
    stranger: subprocess.Popen[bytes],
) -> None:
    row = process_group.look_up(stranger.pid)
    assert row is not None
    process_group.send(ProcessRef(stranger.pid, row.ref.start_ticks - 1), signal.SIGKILL)
    assert stranger.poll() is None
    process_group.send(row.ref, signal.SIGKILL)
    assert stranger.wait(10) == -signal.SIGKILL


def test_a_signal_to_a_process_that_is_gone_is_no_error() -> None:
    child = subprocess.Popen([sys.executable, "-S", "-c", ""])
    row = process_group.look_up(child.pid)
    child.wait()
    assert row is not None
    process_group.send(row.ref, signal.SIGTERM)


def test_what_cannot_be_ended_is_given_back() -> None:
    beyond_reach = ProcessRef(os.getpid(), 0)
    assert process_group.end_all(lambda: {beyond_reach}, grace_s=0.0, kill_wait_s=0.05) == {beyond_reach}


def test_a_child_that_hides_from_one_look_is_found_by_the_next(stranger: subprocess.Popen[bytes]) -> None:
    row = process_group.look_up(stranger.pid)
    assert row is not None
    looks = iter([set(), {row.ref}])

    def find() -> set[ProcessRef]:
        found = next(looks, None)
        return found if found is not None else {row.ref} if stranger.poll() is None else set()

    assert process_group.end_all(find, grace_s=5.0) == set()
    assert stranger.poll() is not None


@pytest.mark.parametrize(
    ("blanked", "leader", "found"),
    [
        (True, "gone", True),
        (False, "gone", False),  # an environment without our mark is a stranger's
        (True, "another", False),  # the engine's PID leads a later, unrelated session
    ],
)
def test_who_is_taken_for_the_engine_s_without_mark_and_without_descent(
    blanked: bool, leader: str, found: bool
) -> None:
    steps = ["blank-environment"] if blanked else []
    argv = [sys.executable, "-S", str(CHILD), *steps, "fork=plain", "print=settled", "wait"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        said = [process.stdout.readline(), process.stdout.readline()]
        (worker,) = (int(line.partition(b"=")[2]) for line in said if line.startswith(b"plain"))
        now = process_group.look_up(process.pid)
        assert now is not None
        engine = now.ref if leader == "gone" else ProcessRef(process.pid, now.ref.start_ticks - 1)
        if leader == "gone":
            process.kill()
            process.wait()
        nobody = ProcessRef(2**22 + 1, 0)
        try:
            pids = {ref.pid for ref in process_group.members(Run("no-such-run", supervisor=nobody, engine=engine))}
            assert (worker in pids) is found
        finally:
            os.kill(worker, signal.SIGKILL)
            process.kill()


def test_a_description_names_pid_state_and_command(stranger: subprocess.Popen[bytes]) -> None:
    row = process_group.look_up(stranger.pid)
    assert row is not None
    text = process_group.describe([row.ref, ProcessRef(2**22 + 1, 0)])
    assert text.startswith(f"pid {stranger.pid} (state ")
    assert "engine_child.py wait" in text
    assert "\n" not in text
