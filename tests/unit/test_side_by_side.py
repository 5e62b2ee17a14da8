"""Jobs of CI side by side: two at a time, no failure lost, nothing left behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2] / "tools" / "side_by_side.py"


def run(*commands: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, str(PROGRAM), *commands]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)


def pipe(directory: Path, name: str) -> Path:
    """Two jobs meet here: whoever opens one end waits for the other."""
    os.mkfifo(directory / name)
    return directory / name


def test_two_run_at_once_and_what_one_printed_stays_in_one_piece(tmp_path: Path) -> None:
    there, back = pipe(tmp_path, "there"), pipe(tmp_path, "back")
    done = run(f"echo a1; echo x > {there}; cat {back}; echo a2", f"echo b1; cat {there}; echo y > {back}; echo b2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "a1\ny\na2\n" in done.stdout
    assert "b1\nx\nb2\n" in done.stdout


def test_no_more_than_two_run_at_once(tmp_path: Path) -> None:
    job = f"mkdir {tmp_path}/$$; ls {tmp_path} | wc -l; sleep 0.2; rmdir {tmp_path}/$$"
    done = run(*[f"{job}; : {number}" for number in range(5)])
    assert done.returncode == 0
    assert {line for line in done.stdout.splitlines() if line.isdigit()} <= {"1", "2"}


@pytest.mark.parametrize("failing", ["exit 7", "false; true", "false | cat", "echo $unset_name"])
def test_a_failure_is_shown_and_fails_the_whole_but_the_others_are_run(failing: str) -> None:
    done = run(failing, "echo out of the second", "echo out of the third")
    assert done.returncode == 1
    assert re.search(rf"failed \(\d+\), \d+ s: {re.escape(failing)}\n", done.stdout)
    assert "out of the second\n" in done.stdout
    assert "out of the third\n" in done.stdout


TOLD = """
import pathlib, signal, sys
held, told = map(pathlib.Path, sys.argv[1:])
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
with held.open("w") as end:
    print("begun", file=end, flush=True)
    signal.sigwait([signal.SIGTERM])
    told.touch()
"""


def test_when_it_is_ended_its_jobs_are_told_and_end_too(tmp_path: Path) -> None:
    told, held = tmp_path / "told", pipe(tmp_path, "held")
    (tmp_path / "job.py").write_text(TOLD, encoding="utf-8")
    job = f"{sys.executable} {tmp_path}/job.py {held} {told}"
    process = subprocess.Popen([sys.executable, PROGRAM, job, "sleep 300", "echo never"], stdout=subprocess.PIPE)
    with held.open() as other_end:
        assert other_end.readline() == "begun\n"
        process.send_signal(signal.SIGTERM)
        printed, _ = process.communicate(timeout=90)
        assert other_end.read() == "", "its end comes when the job's last process has gone"
    assert process.returncode == 143
    assert b"never" not in printed
    assert told.exists()


def test_nothing_to_run_is_a_mistake() -> None:
    assert run().returncode == 1
