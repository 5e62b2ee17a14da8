"""The load process from outside: window, warm-up, records, death, interruption."""

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import httpx
import psutil
import pytest

from outrider.errors import LoadError
from outrider.load import LoadOutcome, LoadPlan, Progress, read_records, run_load

pytestmark = pytest.mark.quiet

METRICS = Path(__file__).parents[2] / "fixtures" / "metrics"
Load = Callable[..., LoadOutcome]


def test_exactly_the_measured_requests_are_counted_and_users_stay_busy_to_the_end(load: Load) -> None:
    got = load(
        "chunks=10,gap=0.01,jitter=0.008", arrivals={"kind": "closed", "concurrency": 4}, requests=24, warmup_requests=4
    )
    phases = [row.phase for row in sorted(got.records, key=lambda row: row.index)]
    assert phases == ["warmup"] * 4 + ["measured"] * 24 + ["cooldown"] * (len(phases) - 28)
    assert got.result.requests == 24
    assert got.result.outcomes == {"length": 24}
    measured = [row for row in got.records if row.phase == "measured"]
    assert min(row.sent_at_s for row in measured) == pytest.approx(0.0, abs=1e-4)
    assert got.result.window_s == pytest.approx(max(row.ended_at_s for row in measured))
    assert got.result.client.mean_in_flight == pytest.approx(4.0, rel=0.05)
    assert got.result.outcomes_unmeasured["cancelled"] >= 1


def test_in_waves_nobody_sends_before_all_have_their_answers(load: Load) -> None:
    got = load(
        "chunks=8,gap=0.01,jitter=0.009",
        arrivals={"kind": "closed", "concurrency": 4, "waves": True},
        requests=12,
        warmup_requests=4,
    )
    rows = sorted((row for row in got.records if row.phase == "measured"), key=lambda row: row.index)
    waves = [rows[at : at + 4] for at in range(0, 12, 4)]
    for earlier, later in itertools.pairwise(waves):
        assert max(row.ended_at_s for row in earlier) <= min(row.sent_at_s for row in later)
    assert got.result.requests == 12
    assert "concurrency_not_held" not in {finding.code for finding in got.result.validity}


def test_warm_up_uses_other_prompts_than_the_window(load: Load) -> None:
    rows = load(requests=20, warmup_requests=10).records
    warm = {row.prompt_id for row in rows if row.phase == "warmup"}
    assert len(warm) == 10
    assert warm.isdisjoint(row.prompt_id for row in rows if row.phase == "measured")


def test_the_same_seed_sends_the_same_prompts_whatever_the_concurrency(load: Load) -> None:
    def measured(concurrency: int, seed: int) -> set[str]:
        rows = load(arrivals={"kind": "closed", "concurrency": concurrency}, requests=12, prompt_seed=seed).records
        return {row.prompt_id for row in rows if row.phase == "measured"}

    assert measured(1, 3) == measured(6, 3)
    assert measured(1, 3) != measured(1, 4)


def test_a_duration_measures_what_was_sent_in_it(load: Load) -> None:
    got = load("chunks=5,gap=0.02", requests=None, duration_s=1.0)
    measured = [row for row in got.records if row.phase == "measured"]
    assert 0.8 < max(row.sent_at_s for row in measured) < 1.0
    assert 1.0 <= got.result.window_s < 1.3
    assert got.result.requests == len(measured) > 10


def test_records_spill_to_a_file_instead_of_memory(load: Load, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    got = load(records_file=file, requests=30)
    assert got.records == []
    rows = read_records(file)
    assert sum(row.phase == "measured" for row in rows) == 30
    assert all(len(row.text_sha256) == 64 and row.output_tokens == 6 for row in rows if row.phase == "measured")


def test_rows_that_cannot_be_written_end_the_test_with_the_reason(load: Load) -> None:
    with pytest.raises(LoadError, match="No space left"):
        load(records_file=Path("/dev/full"), requests=2000, arrivals={"kind": "closed", "concurrency": 8})


def test_an_error_in_our_own_code_is_loud(load: Load, monkeypatch) -> None:
    """A digest function that fails stands in for any mistake in the load process."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent / "broken"))
    with pytest.raises(LoadError, match="exited with code 1") as caught:
        load()
    assert "a mistake of ours" in str(caught.value)


def test_an_engine_that_dies_in_the_window_ends_the_test(load: Load, tmp_path: Path) -> None:
    prompts = tmp_path / "mixed.jsonl"
    prompts.write_text("".join(f'{{"id": "{n}", "prompt": "FAIL {n}"}}\n' for n in range(40)))
    result = load("chunks=3,gap=0.002,failing=FAIL,sparing=9", prompts_file=prompts, requests=10_000).result
    assert result.outcomes["length"] == 9
    assert 9 <= result.outcomes["error_event"] < 40
    assert {f.code: f.severity for f in result.validity}["gave_up"] == "invalid"


def test_completions_stream_as_well(load: Load) -> None:
    result = load("chunks=8,gap=0.005,tokens=3", endpoint="completions").result
    assert result.outcomes == {"length": 4}
    assert (result.tokens, result.chunks, result.tokens_per_chunk) == (4 * 24, 4 * 8, 3.0)


def test_final_usage_only_is_labelled(load: Load) -> None:
    result = load("chunks=8,gap=0.005,tokens=2,usage=final").result
    assert result.token_source == "final_usage"
    assert result.tokens == 4 * 16
    assert "tpot_n_minus_1" in {f.code for f in result.validity}


def test_progress_is_reported_while_it_runs(load: Load, replay, prompts_file: Path) -> None:
    seen: list[Progress] = []
    plan = LoadPlan(
        url=replay.url,
        model="chunks=20,gap=0.02",
        prompts_file=prompts_file,
        arrivals={"kind": "closed", "concurrency": 3},
        requests=12,
    )
    run_load(plan, on_progress=seen.append)
    assert len(seen) >= 2
    assert [p.phase for p in seen] == sorted((p.phase for p in seen), reverse=True)
    assert seen[-1].in_flight == 3
    assert seen[-1].tokens > seen[0].tokens
    assert max(p.tokens_s for p in seen) > 50


def test_an_engine_that_nobody_knows_is_refused_before_anything_is_sent(load: Load, replay) -> None:
    with pytest.raises(LoadError, match="no adapter for engine 'wllm'"):
        load(engine="wllm")
    assert replay.truth() == {}


def test_prompts_that_cannot_be_read_are_an_error_of_the_caller(load: Load, tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="cannot be read"):
        load(prompts_file=tmp_path / "absent.jsonl")


def test_the_load_process_s_death_is_reported(replay, prompts_file: Path) -> None:
    plan = LoadPlan(
        url=replay.url,
        model="chunks=1000,gap=0.05",
        prompts_file=prompts_file,
        arrivals={"kind": "closed", "concurrency": 1},
        requests=1,
    )

    def kill(_progress: Progress) -> None:
        for child in psutil.Process().children(recursive=True):
            if "outrider.load.worker" in child.cmdline():
                child.kill()

    with pytest.raises(LoadError, match="killed by SIGKILL"):
        run_load(plan, on_progress=kill)


SCRIPT = """
import sys, psutil
from pathlib import Path
from outrider.load import LoadPlan, run_load
def tell(_):
    print(*[c.pid for c in psutil.Process().children() if "outrider.load.worker" in c.cmdline()], flush=True)
plan = LoadPlan(url=sys.argv[1], model="chunks=1000,gap=0.05", prompts_file=Path(sys.argv[2]),
                arrivals={"kind": "closed", "concurrency": 2}, requests=2)
run_load(plan, on_progress=tell)
"""


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL])
def test_no_load_process_outlives_an_interrupted_or_killed_caller(replay, prompts_file: Path, ending: int) -> None:
    caller = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, replay.url, str(prompts_file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    worker = psutil.Process(int(caller.stdout.readline()))
    os.kill(caller.pid, ending)
    errors = caller.communicate(timeout=20)[1]
    worker.wait(timeout=10)
    assert not psutil.pid_exists(worker.pid)
    if ending == signal.SIGINT:
        assert "KeyboardInterrupt" in errors


def test_the_key_is_in_no_command_line(load: Load, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("sesame-open")
    lines: list[str] = []

    def look(_progress: Progress) -> None:
        lines.extend(" ".join(child.cmdline()) for child in psutil.Process().children(recursive=True))

    got = load("chunks=40,gap=0.02,key=sesame-open", api_key_file=key, on_progress=look)
    assert got.result.outcomes == {"length": 4}
    assert any("outrider.load.worker" in line for line in lines)
    assert not any("sesame-open" in line for line in lines)
    assert load("chunks=2,key=another", api_key_file=key).result.outcomes == {"unauthorized": 4}


def test_the_engine_s_counters_are_read_around_the_window(load: Load, replay) -> None:
    """The replay server's metrics stand still: differences are zero, and that nothing was drafted is a finding."""
    store(replay.url, (METRICS / "vllm-0.32.0-ngram.txt").read_bytes())
    result = load(engine="vllm", speculates=True).result
    assert result.engine is not None
    assert (result.engine.generation_tokens, result.engine.drafts) == (0.0, 0.0)
    assert result.engine.window_s == pytest.approx(result.window_s, abs=0.2)
    assert {"no_drafts"} <= {f.code for f in result.validity}


@pytest.mark.parametrize("text", [b"", b"# TYPE something counter\nsomething_total 1\n"])
def test_metrics_of_no_engine_are_a_finding_not_a_crash(load: Load, replay, text: bytes) -> None:
    store(replay.url, text)
    result = load(engine="vllm", speculates=True).result
    assert result.engine is None
    assert result.outcomes == {"length": 4}
    assert "no_engine_metrics" in {f.code for f in result.validity}


def store(url: str, text: bytes) -> None:
    httpx.post(f"{url}/metrics", content=text).raise_for_status()
