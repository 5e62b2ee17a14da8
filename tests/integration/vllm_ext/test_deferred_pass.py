"""Passes of the drafter that are put off while k is 0, on the real CPU engine: nothing is lost by it.

The V2 model runner, which CUDA engines take, is Triton: its kernels are interpreted here, and its graphs are not made.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.interpreted_triton import environment

from outrider.engine.vllm import engine_python

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(900)]

# Tokens of the longer answers, and what follows from it: the first answer's tokens but the one that its prefill gave
# are passes put off, seven of which are made up for at once. Interpreted kernels are slow.
SIZES = {"v1": 160, "v2": 80}
COUNTS = {"v1": [44, 7], "v2": [24, 4]}
HERE = Path(__file__).parent
ROOT = HERE.parents[2]


@pytest.fixture(scope="module")
def served(smollm2_dir: Path) -> Callable[[str, str], dict[str, Any]]:
    """The same requests, first three at once at k = 0 and later two with drafts, by runner and how passes were run."""
    found: dict[tuple[str, str], dict[str, Any]] = {}

    def serve(runner: str, how: str) -> dict[str, Any]:
        if (runner, how) in found:
            return found[runner, how]
        # In float32 a pass over seven tokens does not round one of them into another; in one process all three requests
        # come before the first step.
        env = {
            **os.environ, "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "VLLM_USE_V2_MODEL_RUNNER": str(int(runner == "v2")),
            **(environment() if runner == "v2" else {}),
        }  # fmt: skip
        env["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), *filter(None, [env.get("PYTHONPATH")])])
        head = ROOT / "models" / "smollm2-135m-eagle3"
        done = subprocess.run(
            [engine_python(), str(HERE / "deferred_answers.py"), str(smollm2_dir), str(head), how, str(SIZES[runner])],
            env=env, capture_output=True, text=True, timeout=400, check=False,
        )  # fmt: skip
        line = next((line for line in done.stdout.splitlines() if line.startswith("RESULT ")), None)
        assert line, (done.stdout + done.stderr)[-4000:]
        assert (" V2 " in done.stdout + done.stderr) == (runner == "v2"), "it ran on the other model runner"
        found[runner, how] = json.loads(line.removeprefix("RESULT "))
        return found[runner, how]

    return serve


RUNNERS = pytest.mark.parametrize("runner", ["v1", "v2"])


@RUNNERS
def test_the_drafter_knows_as_much_afterwards_as_with_a_pass_each_step(
    served: Callable[[str, str], dict[str, Any]], runner: str
) -> None:
    engine, deferred = served(runner, "engine"), served(runner, "deferred")
    assert (deferred["drafts"], deferred["accepted"]) == (engine["drafts"], engine["accepted"])
    assert deferred["answers"] == engine["answers"]
    assert deferred["counts"] == COUNTS[runner]


@RUNNERS
def test_it_would_know_less_if_they_were_dropped(served: Callable[[str, str], dict[str, Any]], runner: str) -> None:
    engine, forgotten = served(runner, "engine"), served(runner, "forgotten")
    assert forgotten["counts"] == [COUNTS[runner][0], 0]
    assert forgotten["accepted"] < engine["accepted"]
    assert forgotten["answers"] == engine["answers"], "drafts never change what is answered"
