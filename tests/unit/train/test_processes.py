from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from outrider.train.errors import TrainError
from outrider.train.processes import Job, last_lines, require_success, run_all

SOURCE = Path(__file__).parents[3] / "src"


def _job(log: Path, code: str) -> Job:
    return Job([sys.executable, "-c", code], log)


def test_jobs_run_side_by_side_and_give_their_codes(tmp_path: Path) -> None:
    jobs = [_job(tmp_path / f"{code}.log", f"print('said {code}'); raise SystemExit({code})") for code in (0, 3)]
    assert run_all(jobs, {}) == [0, 3]
    assert (tmp_path / "3.log").read_text(encoding="utf-8") == "said 3\n"


def test_variables_reach_the_jobs(tmp_path: Path) -> None:
    log = tmp_path / "log"
    run_all([_job(log, "import os; print(os.environ['GIVEN'])")], {"GIVEN": "yes"})
    assert log.read_text(encoding="utf-8") == "yes\n"


def test_the_budget_ends_what_still_runs_and_that_is_no_failure(tmp_path: Path) -> None:
    forever = "import threading; print('on', flush=True); threading.Event().wait()"
    jobs = [_job(tmp_path / "a.log", forever), _job(tmp_path / "b.log", "pass")]
    codes = run_all(jobs, {}, budget_s=1.0)
    assert codes == [None, 0]
    require_success("regenerate", jobs, codes)


def test_a_failure_shows_the_end_of_its_log(tmp_path: Path) -> None:
    jobs = [_job(tmp_path / "a.log", "print('the cause'); raise SystemExit(5)")]
    with pytest.raises(TrainError, match="stage fit failed with exit code 5") as caught:
        require_success("fit", jobs, run_all(jobs, {}))
    assert "the cause" in caught.value.evidence


def test_jobs_die_with_their_starter_so_that_a_resumed_run_is_alone(tmp_path: Path) -> None:
    starter = f"""
import sys; sys.path.insert(0, {str(SOURCE)!r})
from pathlib import Path
from outrider.train.processes import Job, run_all
code = "import os, threading; print(os.getpid(), flush=True); threading.Event().wait()"
run_all([Job([sys.executable, "-c", code], Path({str(tmp_path / "pid")!r}))], {{}})
"""
    process = subprocess.Popen([sys.executable, "-c", starter])
    child = None
    while child is None:
        assert process.poll() is None
        text = (tmp_path / "pid").read_text(encoding="utf-8") if (tmp_path / "pid").exists() else ""
        child = psutil.Process(int(text)) if text.endswith("\n") else None
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    child.wait(timeout=20)  # raises if it lives on


def test_last_lines_of_a_progress_log_are_its_last_states(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("start\n" + "\r".join(f"{i} %" for i in range(100)), encoding="utf-8")
    assert last_lines(log, 2) == "98 %\n99 %"
    assert last_lines(tmp_path / "absent") == "(no log)"
