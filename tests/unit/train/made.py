"""A session on a directory of the test, with a small stack and no engine."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from outrider.stack import stack_from_text
from outrider.train.recipe import recipe_of
from outrider.train.session import Session

if TYPE_CHECKING:
    from pathlib import Path

STACK = """
schema: 1
name: tiny-cpu
title: t
target: {model: tests/tiny, served_name: tiny, license: Apache-2.0, max_model_len: 128, weight_gb: 0.01}
engine: {version: 0.32.0, build: cpu}
node: {description: d, accelerator: cpu}
variants: {baseline: {}}
training: {aux_layers: [1, 2, 3], draft_vocab_size: 256, samples: 12, check_samples: 4, seq_len: 64}
"""


def make_session(directory: Path, stack: str = STACK, **changes: Any) -> Session:
    model = directory / "model"
    model.mkdir(parents=True, exist_ok=True)
    config = {"vocab_size": 600, "hidden_size": 128, "num_hidden_layers": 4, "max_position_embeddings": 512}
    (model / "config.json").write_text(json.dumps(config), encoding="utf-8")
    loaded = stack_from_text(stack)
    recipe = recipe_of(loaded).with_flags(**changes.pop("recipe", {}))
    return Session(stack=loaded, recipe=recipe, directory=directory / "run", model_dir=model, port=1, **changes)
