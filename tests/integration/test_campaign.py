"""Campaigns on the real engine: interrupted, killed and resumed; engines that die."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import psutil
import pytest

from outrider.campaign.plan import CampaignPlan
from outrider.campaign.run import Watcher, run_campaign
from outrider.campaign.store import RunStore
from outrider.engine.base import Launch
from outrider.errors import RunsAlreadyError
from outrider.runtime.base import State
from outrider.runtime.local import LocalRuntime
from outrider.runtime.ports import free_port
from outrider.stack import find_stack, stack_from_text
from outrider.stack.loader import stacks_dir

if TYPE_CHECKING:
    from collections.abc import Callable

    from outrider.campaign.cell import CellKey
    from outrider.load.result import Progress

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]
SMALL = ["--variant", "baseline", "--workload", "edit", "--repeats", "2", "--requests", "3", "--max-tokens", "12"]
SMALL += ["--concurrency", "1", "--concurrency", "2"]


def eventually(what: str, holds: Callable[[], bool], within_s: float = 300.0) -> None:
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline, f"not within {within_s:.0f} s: {what}"
        time.sleep(0.05)


def campaign(run: str) -> subprocess.Popen[str]:
    argv = [sys.executable, "-m", "outrider.cli", "campaign", "smollm2-cpu", "--run", run, *SMALL]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def lines(run: Path) -> list[dict[str, object]]:
    file = run / "cells.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.is_file() else []


def nothing_runs(state: Path) -> bool:
    return all(status.state is State.ENDED for status in LocalRuntime(state).list())


def test_a_campaign_that_is_interrupted_and_killed_goes_on_where_it_stopped(own_dirs: Path, smollm2_dir: Path) -> None:
    run, state = own_dirs / "results" / "story", own_dirs / "state"

    first = campaign("story")
    eventually("a first cell is kept", lambda: len(lines(run)) == 1 or first.poll() is not None)
    first.send_signal(signal.SIGINT)
    said, _ = first.communicate(timeout=60)
    assert first.returncode == 130, said
    assert "finished work is kept" in said
    assert nothing_runs(state)
    after_first = lines(run)
    assert after_first

    second = campaign("story")
    eventually("one more cell", lambda: len(lines(run)) > len(after_first) or second.poll() is not None)
    second.kill()
    second.communicate(timeout=60)
    eventually("its engine is gone too", lambda: nothing_runs(state), within_s=60)
    after_second = lines(run)
    assert after_second[: len(after_first)] == after_first

    third = campaign("story")
    said, _ = third.communicate(timeout=600)
    assert third.returncode in {0, 3}, said
    assert f"{len(after_second)} cells were measured before" in said
    cells = lines(run)
    assert cells[: len(after_second)] == after_second
    assert len({cell["cell_id"] for cell in cells}) == len(cells) == 4
    assert {cell["status"] for cell in cells} <= {"ok", "flagged"}
    assert all(cell["tokens_per_step"] == 1 for cell in cells)
    assert pl.read_parquet(run / "requests.parquet")["cell_id"].n_unique() == 4
    assert (run / "report.html").stat().st_size > 100_000
    assert nothing_runs(state)


class Unwatched(Watcher):
    """Shows nothing."""


class Killer(Watcher):
    """Kills the engine with SIGKILL as soon as the first cell has a measured request."""

    def __init__(self, pid_of: Callable[[], int | None]) -> None:
        self._pid_of = pid_of
        self.killed: int | None = None

    def cell_progress(self, key: CellKey, progress: Progress) -> None:
        if self.killed is None and progress.measured > 0 and (pid := self._pid_of()):
            self.killed = pid
            os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
def test_a_dead_engine_fails_its_cell_only_and_a_broken_variant_fails_alone(own_dirs: Path, smollm2_dir: Path) -> None:
    text = (stacks_dir() / "smollm2-cpu.yaml").read_text(encoding="utf-8")
    broken = "variants:\n  broken:\n    flags: {no-such-flag: 1}\n"
    stack = stack_from_text(text.replace("variants:\n", broken, 1))
    plan = CampaignPlan.for_stack(
        stack, variants=["broken"], workloads=["edit"], concurrency=[1, 2], repeats=1, requests=3, max_tokens=24
    )
    runtime, store = LocalRuntime(own_dirs / "state"), RunStore(own_dirs / "run")
    killer = Killer(lambda: runtime.status("smollm2-cpu/baseline").pid)

    outcome = run_campaign(stack, plan, store, runtime, killer)

    assert killer.killed is not None
    assert not psutil.pid_exists(killer.killed)
    failed = {cell.cell_id: cell.error or "" for cell in outcome.failed}
    assert set(failed) == {"edit.c1.r0.baseline", "edit.c1.r0.broken", "edit.c2.r0.broken"}
    assert "SIGKILL" in failed["edit.c1.r0.baseline"]
    assert "no-such-flag" in failed["edit.c1.r0.broken"]
    assert [(cell.cell_id, cell.status in {"ok", "flagged"}) for cell in outcome.measured] == [
        ("edit.c2.r0.baseline", True)
    ]
    assert nothing_runs(own_dirs / "state")
    assert "no-such-flag" in (own_dirs / "run" / "logs" / "broken.log").read_text(encoding="utf-8")


@pytest.mark.slow
def test_waves_of_long_prompts_find_them_in_the_prefix_cache_and_say_so_where_they_do_not(
    own_dirs: Path, smollm2_dir: Path
) -> None:
    text = (stacks_dir() / "smollm2-cpu.yaml").read_text(encoding="utf-8")
    forgetful = "variants:\n  forgetful:\n    flags: {enable-prefix-caching: false}\n"
    stack = stack_from_text(text.replace("variants:\n", forgetful, 1))
    plan = CampaignPlan.for_stack(
        stack, variants=["forgetful"], workloads=["random-1500"], concurrency=[3], repeats=1, requests=6, max_tokens=12,
        step_cost=True,
    )  # fmt: skip
    store = RunStore(own_dirs / "run")

    outcome = run_campaign(stack, plan, store, LocalRuntime(own_dirs / "state"), Unwatched())

    assert outcome.failed == ()
    cells = {cell.variant: cell for cell in store.cells()}
    findings = {name: {finding.code for finding in cell.validity} for name, cell in cells.items()}
    assert "prompts_read_again" in findings["forgetful"]
    assert "prompts_read_again" not in findings["baseline"]
    cached, read = (cells[name].load for name in ("baseline", "forgetful"))
    assert cached is not None
    assert cached.engine is not None
    assert read is not None
    assert cached.engine.prefix_hits is not None
    assert cached.engine.prefix_hits > 0.9 * (cached.engine.prefix_queries or 0)
    assert cached.requests == read.requests == 6
    assert cached.prompt_tokens == read.prompt_tokens > 6 * 600
    # Both read their prompts once, to warm up; one of them reads them again in every wave.
    assert (cached.ttft_s.mean or 0) < 0.5 * (read.ttft_s.mean or 0)


def test_a_variant_that_somebody_else_serves_ends_the_campaign_and_fails_no_cell(
    own_dirs: Path, smollm2_dir: Path
) -> None:
    child, port = ROOT / "tests" / "unit" / "runtime" / "engine_child.py", free_port()
    stand_in = Launch(
        argv=(sys.executable, "-S", str(child), f"serve={port}", "wait"), env={}, port=port, health_path="/health",
        metrics_path="/metrics",
    )  # fmt: skip
    stack, runtime = find_stack("smollm2-cpu"), LocalRuntime(own_dirs / "state")
    plan = CampaignPlan.for_stack(stack, variants=["baseline"], workloads=["edit"], concurrency=[1], repeats=1)
    store = RunStore(own_dirs / "run")
    with runtime.start("smollm2-cpu/baseline", stand_in) as other:
        with pytest.raises(RunsAlreadyError, match="smollm2-cpu/baseline runs already") as caught:
            run_campaign(stack, plan, store, runtime, Unwatched())
        assert other.alive(), "it is not ours to stop"
    assert "outrider stop smollm2-cpu baseline" in caught.value.next_step
    assert store.cells() == []
    assert nothing_runs(own_dirs / "state")
