"""What is asked of the engine's profiler, and what is refused before an engine starts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from outrider.engine import adapter
from outrider.errors import StackError
from outrider.profile.capture import capture, profiling_stack
from outrider.profile.errors import ProfileError
from outrider.runtime.local import LocalRuntime
from outrider.stack import find_stack

if TYPE_CHECKING:
    from pathlib import Path

STACK = find_stack("smollm2-cpu")


def test_the_variant_is_served_with_the_profiler_on_and_else_as_it_is(tmp_path: Path) -> None:
    argvs = [
        adapter("vllm").launch(stack, "eagle3", host="h", port=1, model_dir=tmp_path, drafter_dir=tmp_path).argv
        for stack in (STACK, profiling_stack(STACK, "eagle3", tmp_path / "traces"))
    ]
    plain, profiled = argvs
    at = profiled.index("--profiler-config")
    config = json.loads(profiled[at + 1])
    assert config["profiler"] == "torch"
    assert config["torch_profiler_dir"] == str(tmp_path / "traces")
    # The front-end's own profiler would record the whole load, and has no bounds.
    assert config["ignore_frontend"] is True
    assert (*profiled[:at], *profiled[at + 2 :]) == plain


def test_the_engine_counts_the_steps_itself() -> None:
    assert adapter("vllm").profiler_request(skip=8, steps=24) == {"delay_iterations": 8, "max_iterations": 24}


def test_a_stack_with_its_own_profiler_is_refused(tmp_path: Path) -> None:
    engine = STACK.engine.model_copy(update={"flags": {"profiler-config": {"profiler": "torch"}}})
    with pytest.raises(ProfileError, match="profiler-config itself"):
        profiling_stack(STACK.model_copy(update={"engine": engine}), "baseline", tmp_path)


def test_an_unknown_variant_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StackError, match="ngran"):
        profiling_stack(STACK, "ngran", tmp_path)


def test_answers_that_end_before_the_recording_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="end before"):
        capture(
            STACK,
            "baseline",
            tmp_path,
            LocalRuntime(tmp_path / "state"),
            workload="chat",
            batch=1,
            steps=24,
            max_tokens=30,
        )
    assert list(tmp_path.glob("*.json*")) == []
