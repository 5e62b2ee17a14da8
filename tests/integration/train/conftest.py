"""One training run of a tiny target on the real engine, shared by the tests of this directory."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from tests.integration.train.tiny_target import make_target

from outrider.runtime import ports
from outrider.stack import Stack, stack_from_text
from outrider.train import engines, pipeline
from outrider.train.manifest import MANIFEST, Manifest, note_spent
from outrider.train.recipe import recipe_of
from outrider.train.session import Session

STACK = """
schema: 1
name: tiny-cpu
title: a target made in a test
target:
  {model: tests/tiny, served_name: tiny, license: Apache-2.0, dtype: bfloat16, max_model_len: 384, weight_gb: 0.001}
engine: {name: vllm, version: 0.32.0, build: cpu, flags: {enforce-eager: true}}
node: {description: any, accelerator: cpu}
memory: {cpu_kv_gib: 1, max_num_seqs: 32}
variants: {baseline: {}}
training:
  aux_layers: [1, 2, 3]
  draft_vocab_size: 288
  samples: 96
  check_samples: 16
  seq_len: 256
  pack: 4
  max_tokens: 160
  temperatures: {"0.0": 0.4, "0.5": 0.6}
  concurrency: 24
  epochs: 12
  lr: 0.003
  validation_share: 0.1
  workers: 0
  floor: 1.2
"""


@pytest.fixture(scope="session")
def train_python() -> str:
    """The training interpreter: `OUTRIDER_TRAIN_PYTHON`, else the one that `make train-env` makes."""
    made = Path(__file__).parents[3] / ".venv-train" / "bin" / "python"
    python = os.environ.get("OUTRIDER_TRAIN_PYTHON") or str(made)
    assert Path(python).exists(), f"no training interpreter at {python}: make train-env"
    return python


@pytest.fixture(scope="session")
def stack() -> Stack:
    return stack_from_text(STACK)


@pytest.fixture(scope="session")
def session(stack: Stack, train_python: str, tmp_path_factory: pytest.TempPathFactory) -> Session:
    directory = tmp_path_factory.mktemp("train")
    os.environ["OUTRIDER_TRAIN_PYTHON"] = train_python
    return Session(
        stack=stack,
        recipe=recipe_of(stack),
        directory=directory,
        model_dir=make_target(directory / "target"),
        port=ports.free_port(7200),
        budgets={"fit": 1800.0},  # the learning rate follows this clock: more than a busy machine without AVX-512 needs
        say=print,
    )


@pytest.fixture(scope="session")
def trained(session: Session) -> dict[str, Manifest]:
    """All stages. The answers are interrupted: half of them and a torn line are left, as a kill leaves them."""
    launch = engines.plain_launch(session.stack, session.model_dir, session.port, {})
    with session.served("plain", launch) as url:
        served = replace(session, urls={"plain": url})
        whole = pipeline.run(served, until="regenerate")[-1]
        directory = session.stage_dir("regenerate")
        answers = directory / "train.0.jsonl"
        lines = answers.read_text(encoding="utf-8").splitlines(keepends=True)
        kept = lines[: len(lines) // 2]
        answers.write_text("".join(kept) + lines[-1][:40], encoding="utf-8")
        (directory / MANIFEST).unlink()
        note_spent(directory, whole.key, 1.0)
        pipeline.run(served, until="regenerate")
        resumed = answers.read_text(encoding="utf-8").splitlines(keepends=True)
        assert resumed[: len(kept)] == kept
        assert len(resumed) > len(kept)
    return {m.stage: m for m in pipeline.run(session)}
