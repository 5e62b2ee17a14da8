"""`outrider train run`: plain functions with Typer annotations, registered by the command line."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Annotated

import typer

from outrider.model_store import prepare as prepare_model
from outrider.runtime import ports
from outrider.stack import find_stack
from outrider.train import engines, pipeline
from outrider.train.errors import TrainError
from outrider.train.recipe import recipe_of
from outrider.train.session import Session


def _pairs(words: list[str] | None, what: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for word in words or []:
        key, separator, value = word.partition("=")
        if not separator:
            raise typer.BadParameter(f"{what} is NAME=VALUE, got {word!r}")
        found[key] = value
    return found


def _stage(name: str) -> str:
    if name not in pipeline.NAMES:
        raise typer.BadParameter(f"no stage {name!r}; one of: {', '.join(pipeline.NAMES)}")
    return name


def train_run(
    stack: Annotated[str, typer.Argument(help="name or file of a stack with a `training` section")],
    directory: Annotated[Path, typer.Option(help="where the stages keep their output")] = Path("results/train"),
    first: Annotated[str, typer.Option("--from", help="first stage to run")] = pipeline.NAMES[0],
    until: Annotated[str, typer.Option(help="last stage to run")] = pipeline.NAMES[-1],
    samples: Annotated[int | None, typer.Option(help="prompts to answer, over the recipe")] = None,
    check_samples: Annotated[int | None, typer.Option(help="held-out prompts")] = None,
    seq_len: Annotated[int | None, typer.Option(help="tokens of one sample at most")] = None,
    max_tokens: Annotated[int | None, typer.Option(help="tokens of one answer at most")] = None,
    epochs: Annotated[int | None, typer.Option(help="passes over the data")] = None,
    lr: Annotated[float | None, typer.Option(help="learning rate")] = None,
    pack: Annotated[int | None, typer.Option(help="samples of full length in one batch")] = None,
    concurrency: Annotated[int | None, typer.Option(help="requests in flight")] = None,
    clients: Annotated[int | None, typer.Option(help="client processes that share the requests")] = None,
    workers: Annotated[int | None, typer.Option(help="data loader processes")] = None,
    floor: Annotated[float | None, typer.Option(help="acceptance length under which no head is exported")] = None,
    seed: Annotated[int | None, typer.Option(help="of prompts, sampling and training")] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda, for training")] = "cpu",
    model_dir: Annotated[Path | None, typer.Option(help="local files of the target")] = None,
    port: Annotated[int | None, typer.Option(help="port of the engines that are started")] = None,
    url: Annotated[
        list[str] | None, typer.Option(help="PURPOSE=URL of an engine that is served already: plain, extract, head")
    ] = None,
    engine_env: Annotated[list[str] | None, typer.Option(help="NAME=VALUE for the engines")] = None,
    train_env: Annotated[list[str] | None, typer.Option(help="NAME=VALUE for the training interpreter")] = None,
    budget: Annotated[
        list[str] | None,
        typer.Option(help="STAGE=SECONDS for regenerate, extract or fit: stop there with what is done"),
    ] = None,
    json_path: Annotated[
        str | None, typer.Option("--json", help="write the stages' counts; - is standard output")
    ] = None,
) -> None:
    """Train, check and export a head for a stack's target; the same command resumes what was interrupted."""
    chosen = find_stack(stack)
    recipe = recipe_of(chosen).with_flags(
        samples=samples, check_samples=check_samples, seq_len=seq_len, max_tokens=max_tokens, epochs=epochs, lr=lr,
        pack=pack, concurrency=concurrency, clients=clients, workers=workers, floor=floor, seed=seed,
    )  # fmt: skip
    place = model_dir or prepare_model(chosen)
    if place is None:
        raise TrainError(
            f"training reads the target's files, and {chosen.target.model} is not on this machine",
            evidence="neither --model-dir nor OUTRIDER_MODELS points to it",
            next_step="fetch it, then give its directory with --model-dir",
        )
    started = time.monotonic()

    def say(text: str) -> None:
        typer.echo(f"[{time.monotonic() - started:7.1f} s] {text}", err=True)

    directory.mkdir(parents=True, exist_ok=True)
    session = Session(
        stack=chosen,
        recipe=recipe,
        directory=directory.absolute(),
        model_dir=place.absolute(),
        port=port or ports.free_port(8190, engines.HOST),
        engine_env=_pairs(engine_env, "--engine-env"),
        train_env=_pairs(train_env, "--train-env"),
        train_device=device,
        budgets={stage: float(seconds) for stage, seconds in _pairs(budget, "--budget").items()},
        urls=_pairs(url, "--url"),
        say=say,
    )
    manifests = pipeline.run(session, first=_stage(first), until=_stage(until))
    if json_path:
        text = json.dumps(pipeline.summary(manifests), indent=2)
        if json_path == "-":
            typer.echo(text)
        else:
            Path(json_path).write_text(text + os.linesep, encoding="utf-8")
