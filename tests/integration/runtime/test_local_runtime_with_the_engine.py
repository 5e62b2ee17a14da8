"""The real engine under the local runtime: start, answer, stop, nothing left; and a kill while it serves."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

import httpx
import pytest

from outrider.engine.base import Launch
from outrider.errors import EngineError
from outrider.runtime import ports, process_group
from outrider.runtime.base import State
from outrider.runtime.local import LocalRuntime

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from outrider.runtime.base import Progress
    from outrider.runtime.running import LocalRunning

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(600)]

NAME = "smollm2-cpu/baseline"
QUESTION = {"model": "smollm2", "prompt": "The capital of France is", "max_tokens": 8, "temperature": 0}
PROGRESS = (
    ("non-default args", 0.2),
    ("Initializing a V1 LLM engine", 0.4),
    (r"Loading safetensors checkpoint shards: +(?P<percent>\d+)% Completed", 0.8),
    ("init engine", 0.95),
)


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[LocalRuntime]:
    runtime = LocalRuntime(tmp_path / "state", grace_s=10.0)
    yield runtime
    runtime.stop(NAME)


def launch(model_dir: Path, *arguments: str) -> Launch:
    port = ports.free_port(7100)
    server = (
        "-m",
        "vllm.entrypoints.openai.api_server",
        "--model",
        str(model_dir),
        "--served-model-name",
        "smollm2",
    )
    return Launch(
        argv=(
            os.environ.get("OUTRIDER_ENGINE_PYTHON", sys.executable), *server, "--host", "127.0.0.1",
            "--port", str(port), "--dtype", "bfloat16", "--max-model-len", "2048", "--enforce-eager", *arguments,
        ),
        env={
            "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1",
        },
        port=port,
        health_path="/health",
        metrics_path="/metrics",
        weight_bytes=sum(file.stat().st_size for file in model_dir.glob("*.safetensors")),
        progress=PROGRESS,
    )  # fmt: skip


def nothing_left(running: LocalRunning) -> bool:
    record = running.record
    return not process_group.members(record.run) and not process_group.lives(record.supervisor)


def test_the_engine_starts_answers_and_stops_without_a_trace_twice_in_a_row(
    runtime: LocalRuntime, smollm2_dir: Path
) -> None:
    seen: list[Progress] = []
    wanted = launch(smollm2_dir)
    with runtime.start(NAME, wanted, on_progress=seen.append, weights=[smollm2_dir]) as running:
        answer = httpx.post(f"{running.url}/v1/completions", json=QUESTION, timeout=60).json()
        assert "Paris" in answer["choices"][0]["text"]
        commands = process_group.describe(process_group.members(running.record.run))
        assert "VLLM::EngineCore" in commands
        marker = f"{process_group.RUN_ID_VARIABLE}={running.record.run_id}".encode()
        for ref in process_group.members(running.record.run):
            assert marker in (process_group._environ(ref.pid) or b"").split(b"\0"), process_group.describe([ref])
        assert any("non-default args" in line for line in running.log_lines())
    assert nothing_left(running)
    assert ports.is_free(wanted.port)
    shares = [progress.share for progress in seen if progress.share is not None]
    assert len(set(shares)) >= 4
    assert shares[-1] == 1.0
    assert runtime.status(NAME).state is State.ENDED

    with runtime.start(NAME, wanted, on_progress=seen.append) as running:
        os.kill(running.pid, signal.SIGKILL)
        assert process_group.wait_gone(running.record.engine, 30.0)
        assert not running.alive()
        failure = running.failure()
    assert failure is not None
    assert "signal 9 (SIGKILL)" in str(failure)
    assert nothing_left(running), "the core and its workers do not outlive their server"
    assert ports.is_free(wanted.port)


def test_an_argument_that_the_engine_does_not_know_is_named(runtime: LocalRuntime, smollm2_dir: Path) -> None:
    with pytest.raises(EngineError, match="does not know the argument --no-such-flag"):
        runtime.start(NAME, launch(smollm2_dir, "--no-such-flag"))


def test_a_speculative_field_that_the_engine_does_not_know_is_named(runtime: LocalRuntime, smollm2_dir: Path) -> None:
    config = '{"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_maxx": 4}'
    with pytest.raises(EngineError, match="speculative field prompt_lookup_maxx"):
        runtime.start(NAME, launch(smollm2_dir, "--speculative-config", config))


def test_ctrl_c_while_the_engine_loads_leaves_nothing(runtime: LocalRuntime, smollm2_dir: Path) -> None:
    def interrupt(progress: Progress) -> None:
        if (progress.share or 0.0) >= 0.4:  # the core's process exists by now
            raise KeyboardInterrupt

    wanted = launch(smollm2_dir)
    with pytest.raises(KeyboardInterrupt):
        runtime.start(NAME, wanted, on_progress=interrupt)
    assert runtime.status(NAME).state is State.ENDED
    assert ports.is_free(wanted.port)
