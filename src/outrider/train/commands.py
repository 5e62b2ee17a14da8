"""`outrider train plan` and `outrider train run`: plain functions, registered by the command line."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from outrider.model_store import prepare as prepare_model
from outrider.runtime import ports
from outrider.stack import find_stack
from outrider.train import catalogue, engines, pipeline
from outrider.train.dry_run import dry_run
from outrider.train.errors import TrainError
from outrider.train.plan import Workload, plan_on, verdict
from outrider.train.plan_document import plan_json, plan_markdown, plan_table
from outrider.train.recipe import recipe_of
from outrider.train.session import Session

if TYPE_CHECKING:
    from outrider.train.plan import Plan


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
    online: Annotated[
        bool | None, typer.Option("--online/--offline", help="make hidden states while training, keep none on disk")
    ] = None,
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
    only_dry: Annotated[
        bool, typer.Option("--dry-run", help="build an untrained head and stop: proves that the recipe fits the target")
    ] = False,
    json_path: Annotated[
        str | None, typer.Option("--json", help="write the stages' counts; - is standard output")
    ] = None,
) -> None:
    """Train, check and export a head for a stack's target; the same command resumes what was interrupted."""
    chosen = find_stack(stack)
    recipe = recipe_of(chosen).with_flags(
        samples=samples, check_samples=check_samples, seq_len=seq_len, max_tokens=max_tokens, epochs=epochs, lr=lr,
        pack=pack, concurrency=concurrency, clients=clients, workers=workers, online=online, floor=floor, seed=seed,
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
    if only_dry:
        built = dry_run(session)
        say(f"the recipe fits: a head of {built['parameters'] / 1e6:.1f} M parameters, {built['bytes'] / 1e6:.1f} MB")
        if json_path:
            _write_json(json_path, built)
        return
    manifests = pipeline.run(session, first=_stage(first), until=_stage(until))
    if json_path:
        _write_json(json_path, pipeline.summary(manifests))


def train_plan(
    stack: Annotated[str, typer.Argument(help="name or file of a stack")],
    samples: Annotated[int | None, typer.Option(help="conversations; the recipe's if left out")] = None,
    seq_len: Annotated[int | None, typer.Option(help="tokens of one, prompt and answer")] = None,
    epochs: Annotated[float, typer.Option(help="passes over the data")] = 1.0,
    node: Annotated[str, typer.Option(help="node of the catalogue, `this`, or a YAML file")] = "",
    config: Annotated[Path | None, typer.Option(help="config.json of the target, if the catalogue lacks it")] = None,
    answer_tok_s: Annotated[float | None, typer.Option(help="measured decode throughput of the node")] = None,
    answer_share: Annotated[float, typer.Option(help="share of tokens that the target writes")] = 0.7,
    markdown: Annotated[Path | None, typer.Option(help="write the plan as a document")] = None,
    json_path: Annotated[
        str | None, typer.Option("--json", help="write the plan as JSON; - is standard output")
    ] = None,
) -> None:
    """Say what training a head costs, where it fits, and what a bigger machine would change. Starts nothing."""
    chosen = find_stack(stack)
    recipe = recipe_of(chosen)
    target = catalogue.target_shape(chosen, config)
    head = catalogue.head_shape(target, recipe)
    work = Workload(
        samples or recipe.samples, seq_len or recipe.seq_len, answer_share, epochs, recipe.k, recipe.check_samples
    )
    name = node or catalogue.default_node(chosen)
    here = plan_on(catalogue.find_node(name, target, answer_tok_s=answer_tok_s), target, head, work)
    others = [
        plan_on(catalogue.find_node(other, target), target, head, work)
        for other in catalogue.node_names()
        if other != name
    ]
    sentence = verdict(here, others)
    if markdown is not None:
        text = plan_markdown(chosen.name, target, here, others, work, sentence, recipe.floor)
        markdown.write_text(text, encoding="utf-8")
    if json_path:
        _write_json(json_path, plan_json(here, others, work, sentence))
    if json_path != "-":
        _show(here, work, sentence)


def _show(here: Plan, work: Workload, sentence: str) -> None:
    table = Table(title=f"{work.samples} samples x {work.seq_len} tokens on {here.node.title}, {here.mode}")
    for column in ("stage", "wall h", "GPU h", "disk", "formula"):
        table.add_column(column, overflow="fold")
    for row in plan_table(here):
        table.add_row(*row)
    console = Console()
    console.print(table)
    console.print(here.reason, highlight=False)
    console.print(sentence, style="bold", highlight=False)


def _write_json(place: str, data: dict[str, Any]) -> None:
    text = json.dumps(data, indent=2)
    if place == "-":
        typer.echo(text)
    else:
        Path(place).write_text(text + "\n", encoding="utf-8")
