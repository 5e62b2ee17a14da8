"""Passes of the drafter that are put off while k is 0, on the real CPU engine: nothing is lost by it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from outrider.engine.vllm import engine_python

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(900)]

HERE = Path(__file__).parent
ROOT = HERE.parents[2]


@pytest.fixture(scope="module")
def served(smollm2_dir: Path) -> dict[str, dict[str, Any]]:
    """The same requests, first three at once at k = 0 and later two with drafts, by how the passes were run."""
    found = {}
    for how in ("engine", "deferred", "forgotten"):
        # In float32 a pass over seven tokens does not round one of them into another; in one process all three requests
        # come before the first step.
        env = {
            **os.environ, "PYTHONPATH": str(ROOT / "src"), "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1",
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        }  # fmt: skip
        head = ROOT / "models" / "smollm2-135m-eagle3"
        done = subprocess.run(
            [engine_python(), str(HERE / "deferred_answers.py"), str(smollm2_dir), str(head), how],
            env=env, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        line = next((line for line in done.stdout.splitlines() if line.startswith("RESULT ")), None)
        assert line, (done.stdout + done.stderr)[-4000:]
        found[how] = json.loads(line.removeprefix("RESULT "))
    return found


def test_the_drafter_knows_as_much_afterwards_as_with_a_pass_each_step(served: dict[str, dict[str, Any]]) -> None:
    engine, deferred = served["engine"], served["deferred"]
    assert (deferred["drafts"], deferred["accepted"]) == (engine["drafts"], engine["accepted"])
    assert deferred["answers"] == engine["answers"]
    # The first answer's tokens but the one that its prefill gave, seven steps a pass.
    assert deferred["counts"] == [44, 7]


def test_it_would_know_less_if_they_were_dropped(served: dict[str, dict[str, Any]]) -> None:
    assert served["forgotten"]["counts"] == [44, 0]
    assert served["forgotten"]["accepted"] < served["engine"]["accepted"]
    assert served["forgotten"]["answers"] == served["engine"]["answers"], "drafts never change what is answered"
