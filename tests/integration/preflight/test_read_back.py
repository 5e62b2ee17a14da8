"""The real engine with a drafter: it chooses what preflight expected, and its KV cache has the estimated size."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

import httpx
import numpy as np
import pytest
from tests.unit.preflight.checkpoints import Draft, codes

from outrider.engine import adapter
from outrider.preflight import read_running, run_preflight
from outrider.preflight.facts.drafter import view_drafter
from outrider.preflight.facts.layout import expected_drafter_tensors
from outrider.stack import find_stack

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from outrider.stack import Stack

REDUCED, VOCABULARY = 4096, 49152


def random_head(directory: Path) -> Path:
    """An EAGLE-3 head of SmolLM2's shape whose weights mean nothing, laid out as preflight expects it."""
    config = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "hidden_size": 576,
        "num_hidden_layers": 1,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "head_dim": 64,
        "intermediate_size": 1536,
        "vocab_size": VOCABULARY,
        "draft_vocab_size": REDUCED,
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-5,
        "hidden_act": "silu",
        "rope_theta": 100000.0,
        "tie_word_embeddings": False,
        "eagle_aux_hidden_state_layer_ids": [2, 15, 27],
    }
    layout = expected_drafter_tensors(view_drafter(config, "eagle3"))
    assert layout is not None
    layout["lm_head.weight"] = (REDUCED, 576)
    numbers = np.random.default_rng(0)
    tensors = {name: (numbers.standard_normal(shape) * 0.02).astype(np.float16) for name, shape in layout.items()}
    tensors["d2t"] = np.arange(REDUCED, dtype=np.int64) * 11
    return Draft(config, tensors).write(directory)


def stack_with_head() -> Stack:
    stack = find_stack("smollm2-cpu")
    data = stack.model_dump(mode="json", by_alias=True)
    drafter = {"model": "models/random-head"}
    data["variants"]["random"] = {"speculation": {"method": "eagle3", "k": 3, "drafter": drafter}}
    return type(stack).model_validate(data)


@contextmanager
def engine(stack: Stack, model: Path, head: Path, log: Path) -> Iterator[str]:
    """Start the variant and wait for it on its own log."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    launch = adapter("vllm").launch(stack, "random", host="127.0.0.1", port=port, model_dir=model, drafter_dir=head)
    process = subprocess.Popen(
        launch.argv,
        env={**os.environ, **launch.env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        with log.open("w", encoding="utf-8") as file:
            for line in process.stdout:
                file.write(line)
                if "Application startup complete" in line:
                    break
            else:
                pytest.fail(f"the engine ended: {log.read_text(encoding='utf-8')[-2000:]}")
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.slow
@pytest.mark.engine
@pytest.mark.timeout(600)
def test_engine_chooses_what_preflight_expected(smollm2_dir: Path, tmp_path: Path) -> None:
    stack, head = stack_with_head(), random_head(tmp_path / "head")
    before = run_preflight(stack, "random", model_dir=smollm2_dir, drafter_dir=head)
    assert codes(before.findings) == set()
    with engine(stack, smollm2_dir, head, tmp_path / "engine.log") as url:
        running = read_running("vllm", url, log=tmp_path / "engine.log")
        after = run_preflight(stack, "random", model_dir=smollm2_dir, drafter_dir=head, running=running)
        assert codes(after.findings) == set()
        assert running.facts is not None
        assert running.facts.kv_tokens == pytest.approx(before.memory[0].kv_tokens, rel=0.05)
        # A head that means nothing is the silent fault: healthy server, right answers, nothing accepted.
        for _ in range(2):
            httpx.post(
                f"{url}/v1/completions",
                json={"model": stack.target.served_name, "prompt": "One two", "max_tokens": 120, "ignore_eos": True},
                timeout=120.0,
            ).raise_for_status()
        running = read_running("vllm", url, log=tmp_path / "engine.log")
    silent = run_preflight(stack, "random", model_dir=smollm2_dir, drafter_dir=head, running=running)
    assert codes(silent.findings) == {"RUN011"}
