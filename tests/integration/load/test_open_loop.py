"""Open loops send on schedule, whatever the server does, and say so when they could not."""

import json
import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import psutil
import pytest

from outrider.load import LoadOutcome, LoadPlan, Progress, run_load

pytestmark = pytest.mark.quiet

Load = Callable[..., LoadOutcome]


def test_a_slow_server_does_not_slow_the_schedule(load: Load) -> None:
    """Answers take 1 s, arrivals come every 50 ms: a closed loop in disguise would fall behind."""
    got = load("chunks=2,ttft=0.9,gap=0.1", arrivals={"kind": "constant", "rate": 20}, requests=30, warmup_requests=2)
    rows = sorted((row for row in got.records if row.phase == "measured"), key=lambda row: row.index)
    gaps = [b.sent_at_s - a.sent_at_s for a, b in pairwise(rows)]
    assert fmean(gaps) == pytest.approx(0.05, rel=0.02)
    assert got.result.client.mean_in_flight > 10
    assert all(row.lateness_s is not None and row.scheduled_at_s is not None for row in rows)
    assert got.result.client.lateness_s.p50 < 0.02


def test_poisson_arrivals_follow_the_seeded_schedule(load: Load) -> None:
    def schedule(seed: int) -> list[float]:
        got = load(arrivals={"kind": "poisson", "rate": 40}, requests=20, prompt_seed=seed)
        rows = sorted((row for row in got.records if row.phase == "measured"), key=lambda row: row.index)
        return [round(row.scheduled_at_s - rows[0].scheduled_at_s, 6) for row in rows]

    assert schedule(1) == schedule(1)
    assert schedule(1) != schedule(2)


def test_a_trace_is_replayed_to_its_end(load: Load, tmp_path: Path) -> None:
    times = [0.0, 0.05, 0.06, 0.3, 0.31]
    file = tmp_path / "trace.jsonl"
    file.write_text("".join(json.dumps({"at_s": t + 1000}) + "\n" for t in times))
    got = load(arrivals={"kind": "trace", "file": str(file)}, requests=None)
    rows = sorted((row for row in got.records if row.phase == "measured"), key=lambda row: row.index)
    assert [row.scheduled_at_s - rows[0].scheduled_at_s for row in rows] == pytest.approx(times, abs=1e-6)
    assert got.result.outcomes == {"length": 5}


def test_a_client_that_fell_behind_its_schedule_is_invalid(replay, prompts_file: Path) -> None:
    """The load process is stopped for half a second: its sends wait, and that wait is in no latency."""
    plan = LoadPlan(
        url=replay.url,
        model="chunks=3,gap=0.005",
        prompts_file=prompts_file,
        arrivals={"kind": "constant", "rate": 100},
        requests=200,
        warmup_requests=0,
    )
    stopped: list[psutil.Process] = []

    def stop_once(_progress: Progress) -> None:
        if not stopped:
            stopped.extend(c for c in psutil.Process().children() if "outrider.load.worker" in c.cmdline())
            stopped[0].suspend()
            threading.Timer(0.5, stopped[0].resume).start()

    result = run_load(plan, on_progress=stop_once).result
    assert result.outcomes == {"length": 200}
    assert result.client.lateness_s.p99 > 0.3
    assert {f.code: f.severity for f in result.validity}["late_sends"] == "invalid"
