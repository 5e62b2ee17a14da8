"""One training run of a tiny target on the real engine, shared by the tests of this directory."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from tests.integration.train.tiny_target import make_target

from outrider.runtime import ports
from outrider.stack import Stack, stack_from_text
from outrider.train import pipeline
from outrider.train.manifest import Manifest
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
  draft_vocab_size: 512
  samples: 120
  check_samples: 16
  seq_len: 256
  pack: 4
  max_tokens: 160
  temperatures: {"0.0": 0.4, "0.7": 0.6}
  concurrency: 24
  epochs: 12
  lr: 0.003
  validation_share: 0.1
  workers: 0
  floor: 1.3
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
        port=ports.free_port(8137),
        budgets={"fit": 90.0},
        say=print,
    )


@pytest.fixture(scope="session")
def trained(session: Session) -> dict[str, Manifest]:
    """All stages, with a kill in the middle of the answers: the run is first made to stop there, then resumed."""
    stopped = replace(session, budgets={**session.budgets, "regenerate": 4.0})
    pipeline.run(stopped, until="regenerate")
    first = session.stage_dir("regenerate")
    # What a kill would leave: no manifest, whole rows, and one torn line at the end of the file.
    (first / "manifest.json").unlink()
    return {m.stage: m for m in pipeline.run(session)}
