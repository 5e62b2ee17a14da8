"""CPU time of others is told from that of the measurement."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import time

import pytest
from tests.unit.campaign.made import cell

from outrider.campaign import bystanders
from outrider.campaign.bystanders import Bystanders
from outrider.campaign.cell import Cell
from outrider.load.result import Finding

BURN_S = 1.0
BURN = f"import time\nend = time.process_time() + {BURN_S}\nwhile time.process_time() < end: pass"


def burn_detached() -> None:
    """Burn CPU in a process that is no descendant of ours: its parent has ended."""
    middle = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {BURN!r}], start_new_session=True)"
    subprocess.run([sys.executable, "-c", middle], check=True)


def wait_for_cpu(seconds: float) -> None:
    """Return once the machine has spent so many CPU seconds, whoever did."""
    before = bystanders._machine_busy_s()
    deadline = time.monotonic() + 30
    while bystanders._machine_busy_s() - before < seconds:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_strangers_work_is_flagged_with_its_size() -> None:
    watch = Bystanders([])
    burn_detached()
    wait_for_cpu(BURN_S)
    finding = watch.finding()
    assert finding is not None
    assert finding.code == "machine_busy"
    assert f"of {os.cpu_count()} cores" in finding.evidence


def test_work_of_our_own_children_is_ours() -> None:
    watch = Bystanders([])
    before = watch._own_s()
    child = multiprocessing.get_context("spawn").Process(target=exec, args=(BURN,))
    child.start()
    child.join()
    assert watch._own_s() - before >= BURN_S * 0.95


def test_a_finding_makes_a_cell_doubtful_and_survives_the_file() -> None:
    watch = Bystanders([])
    burn_detached()
    wait_for_cpu(BURN_S)
    finding = watch.finding()
    assert finding is not None
    doubtful = cell().with_finding(finding)
    assert (doubtful.status, doubtful.validity) == ("flagged", (finding,))
    read = Cell.from_json(doubtful.to_json(), "f:1")
    assert (read.status, read.validity) == ("flagged", (finding,))


@pytest.mark.parametrize(("status", "expected"), [("ok", "flagged"), ("invalid", "invalid")])
def test_a_finding_never_improves_a_cell(status: str, expected: str) -> None:
    doubt = Finding(code="machine_busy", severity="flagged", evidence="x")
    assert cell().model_copy(update={"status": status}).with_finding(doubt).status == expected
