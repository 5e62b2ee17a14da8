"""The expert budget on the real CPU engine: no effect at B = all, on decode steps alone below, never silently off."""

from __future__ import annotations

import json
import os
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.integration.vllm_ext import tiny_moe
from transformers import LlamaConfig, LlamaForCausalLM

from outrider.engine.vllm import engine_python
from outrider.vllm_ext.expert_budget.settings import VARIABLE

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(900)]

HERE = Path(__file__).parent
SOURCES = HERE.parents[2] / "src"
EXPERTS, TOP_K = 16, 4


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("models")
    return {
        "deepseek_v3": tiny_moe.deepseek_v3(place / "deepseek_v3"),
        "qwen3_moe": tiny_moe.qwen3_moe(place / "qwen3_moe"),
    }


@cache
def run(model: Path, mode: str, budget: str | None) -> tuple[dict[str, Any] | None, str]:
    """What the engine answered, None if it did not start; and its log."""
    env = {
        **os.environ, "PYTHONPATH": str(SOURCES), "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1",
        "VLLM_CACHE_ROOT": str(model.parent / "cache"),
        # All prompts before the first step: answers of this engine's MLA depend on which prompts share a prefill.
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    }  # fmt: skip
    if budget is not None:
        env[VARIABLE] = budget
    done = subprocess.run(
        [engine_python(), str(HERE / "budget_answers.py"), str(model), mode],
        env=env, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    line = next((line for line in done.stdout.splitlines() if line.startswith("RESULT ")), None)
    return (json.loads(line.removeprefix("RESULT ")) if line else None), done.stdout + done.stderr


def answered(model: Path, mode: str, /, **budget: Any) -> dict[str, Any]:
    result, log = run(model, mode, json.dumps(budget) if budget else None)
    assert result is not None, log[-4000:]
    return result


@pytest.mark.parametrize("name", ["deepseek_v3", "qwen3_moe"])
def test_a_budget_of_all_experts_gives_the_same_answers_to_the_last_bit(models: dict[str, Path], name: str) -> None:
    plain = answered(models[name], "eager")
    assert answered(models[name], "eager", experts=EXPERTS)["answers"] == plain["answers"]


@pytest.mark.parametrize(("name", "how"), [("deepseek_v3", "reroute"), ("qwen3_moe", "drop")])
def test_a_small_budget_bounds_decode_steps_and_leaves_prefill_alone(
    models: dict[str, Path], name: str, how: str
) -> None:
    plain = answered(models[name], "eager")["answers"]
    bounded = answered(models[name], "eager", experts=TOP_K, mode=how, report_every=5)
    firsts = [(a[0], b[0]) for a, b in zip(plain, bounded["answers"], strict=True)]
    assert all(a == b for a, b in firsts), "the first token comes from prefill"
    later = [a[1:] != b[1:] for a, b in zip(plain, bounded["answers"], strict=True)]
    assert all(later), "six prompts on four experts of sixteen: every answer differs, at least in its probabilities"
    layers = bounded["counts"]
    assert len(layers) == 2
    for _, chosen, read in layers:
        assert chosen > TOP_K >= read > 0


@pytest.mark.parametrize(
    ("budget", "says"),
    [
        ('{"experts": 3}', "experts 3 is below top_k 4"),
        ('{"experts": 64, "share": 0.5}', "one of experts and share"),
        ("{", "is no JSON"),
    ],
)
def test_an_engine_with_a_budget_that_cannot_hold_does_not_start(
    models: dict[str, Path], budget: str, says: str
) -> None:
    result, log = run(models["qwen3_moe"], "eager", budget)
    assert result is None
    assert says in log


def test_a_compiled_cpu_engine_is_refused(models: dict[str, Path]) -> None:
    result, log = run(models["qwen3_moe"], "compiled", '{"experts": 8}')
    assert result is None
    assert "serve with --enforce-eager" in log


def test_a_model_without_experts_does_not_start(tmp_path: Path) -> None:
    config = LlamaConfig(
        vocab_size=512, hidden_size=64, intermediate_size=128, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=512,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(tmp_path / "llama")
    result, log = run(tmp_path / "llama", "eager", '{"experts": 8}')
    assert result is None
    assert "LlamaForCausalLM has no MoE layer" in log


def test_the_start_says_what_is_bounded(models: dict[str, Path]) -> None:
    _, log = run(models["deepseek_v3"], "eager", json.dumps({"experts": TOP_K, "mode": "reroute", "report_every": 5}))
    assert "expert budget: 2 MoE layers of 16 experts, top_k 4: at most 4 experts a layer (reroute)" in log
    assert "expert budget: bounded step 5, B=4: read 4.0 experts a layer" in log
