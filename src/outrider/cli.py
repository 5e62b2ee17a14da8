"""The command line: the only module that knows every package."""

from __future__ import annotations

import errno
import json
import shlex
import sys
from enum import StrEnum
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.table import Table

from outrider import __version__
from outrider.bundle.commands import bundle_command
from outrider.campaign.commands import campaign_command, report_command
from outrider.campaign.parity_command import parity_command
from outrider.decide.commands import decide_command
from outrider.decide.probe_command import probe_command
from outrider.engine import adapter_of
from outrider.errors import OutriderError, StackError
from outrider.images.commands import image_build, image_lock
from outrider.load.commands import load_command, verify_client_command
from outrider.model_store import cache_root, prepare
from outrider.model_store.locate import expected
from outrider.observe.commands import observe_down, observe_export, observe_render, observe_up
from outrider.observe.watch import watch_command
from outrider.patches.commands import patches_apply, patches_check
from outrider.predict.budget_command import predict_budget
from outrider.predict.commands import predict_run, predict_validate
from outrider.predict.shape_command import shape_command
from outrider.preflight import preflight_command
from outrider.profile.commands import profile_capture, profile_read
from outrider.provision.commands import provision_command
from outrider.runtime.commands import logs_command, serve_command, status_command, stop_command
from outrider.runtime.render_compose import compose_text
from outrider.runtime.render_systemd import UnitOptions, unit_text
from outrider.stack.loader import find_stack, list_stacks, load_stack
from outrider.state import full_disk
from outrider.train.commands import train_plan, train_run
from outrider.tune.commands import tune_command

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Which way of serving this model is fastest at which load, and how do you run it?",
)


_INTERRUPTED = 130  # what shells report for Ctrl-C


class Form(StrEnum):
    """What a variant can be rendered as."""

    ARGV = "argv"
    ENV = "env"
    JSON = "json"
    COMPOSE = "compose"
    SYSTEMD = "systemd"


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Outrider."""


@app.command()
def stacks() -> None:
    """List the shipped stacks with their variants; a broken file is shown with its mistakes."""
    table = Table(header_style="bold")
    for column in ("stack", "target", "node", "engine", "variants"):
        table.add_column(column)
    broken: list[StackError] = []
    for file in list_stacks():
        try:
            stack = load_stack(file)
        except StackError as error:
            broken.append(error)
            continue
        engine = f"{stack.engine.name} {stack.engine.version} {stack.engine.build}"
        node = stack.node.accelerator if not stack.node.gpus else f"{stack.node.gpus}x {stack.node.accelerator}"
        table.add_row(stack.name, stack.target.model, node, engine, ", ".join(stack.variants))
    Console().print(table)
    for mistake in broken:
        typer.echo(str(mistake), err=True)
    if broken:
        raise typer.Exit(1)


@app.command()
def render(
    stack: Annotated[str, typer.Argument(help="Name of a shipped stack, or a YAML file.")],
    variant: Annotated[str, typer.Argument(help="One of its variants; for compose also `all`.")],
    form: Annotated[Form, typer.Option("--as", help="What to print.")] = Form.ARGV,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port that the engine will listen on.")] = 8000,
) -> None:
    """Print what starts a variant, in the form that is asked for; starts nothing, fetches nothing."""
    chosen = find_stack(stack)
    if form is Form.COMPOSE:
        variants = tuple(chosen.variants) if variant == "all" else (variant,)
        typer.echo(compose_text(chosen, variants, __version__), nl=False)
        return
    located = expected(chosen, variant)
    launch = adapter_of(chosen, variant).launch(
        chosen,
        variant,
        host="127.0.0.1",
        port=port,
        model_dir=located.model_dir,
        drafter_dir=located.drafter_dir,
    )
    if form is Form.ARGV:
        typer.echo(shlex.join(launch.argv))
    elif form is Form.ENV:
        for name, value in launch.env.items():
            typer.echo(f"{name}={shlex.quote(value)}")
    elif form is Form.SYSTEMD:
        paths = tuple(path for path in (located.model_dir, located.drafter_dir) if path)
        typer.echo(unit_text(chosen, variant, launch, UnitOptions(python=sys.executable, paths=paths)), nl=False)
    else:
        typer.echo(
            json.dumps(
                {
                    "stack": chosen.name,
                    "stack_digest": chosen.digest(),
                    "variant": variant,
                    "argv": launch.argv,
                    "env": dict(launch.env),
                    "port": launch.port,
                    "health_path": launch.health_path,
                    "metrics_path": launch.metrics_path,
                    "weight_bytes": launch.weight_bytes,
                },
                indent=2,
            )
        )


@app.command()
def fetch(stack: Annotated[str, typer.Argument(help="Name of a shipped stack, or a YAML file.")]) -> None:
    """Make the target's files ready and check them, so that serving needs nothing more."""
    chosen = find_stack(stack)
    console = Console(highlight=False)
    with console.status("looking") as status:
        directory = prepare(chosen, lambda text, share: status.update(f"{text} ({share:.0%})"))
    where = directory or "the engine fetches it itself; OUTRIDER_MODELS names a directory of checkpoints"
    console.print(f"{chosen.target.model}: {where}", soft_wrap=True)


app.command("provision")(provision_command)
app.command("preflight")(preflight_command)
app.command("serve")(serve_command)
app.command("stop")(stop_command)
app.command("status")(status_command)
app.command("logs")(logs_command)
app.command("bundle")(bundle_command)
app.command("load")(load_command)
app.command("verify-client")(verify_client_command)
app.command("campaign")(campaign_command)
app.command("report")(report_command)
app.command("parity")(parity_command)
app.command("decide")(decide_command)
app.command("probe")(probe_command)
app.command("shape")(shape_command)
app.command("tune")(tune_command)

_train = typer.Typer(no_args_is_help=True, help="Train a drafter: what it costs beforehand, then stage by stage.")
_train.command("plan")(train_plan)
_train.command("run")(train_run)
app.add_typer(_train, name="train")

_predict = typer.Typer(no_args_is_help=True, help="Predict what was not measured, and say how wrong that is.")
_predict.command("run")(predict_run)
_predict.command("budget")(predict_budget)
_predict.command("validate")(predict_validate)
app.add_typer(_predict, name="predict")

_profile = typer.Typer(no_args_is_help=True, help="Say where the time of a decode step goes.")
_profile.command("capture")(profile_capture)
_profile.command("read")(profile_read)
app.add_typer(_profile, name="profile")

app.command("watch")(watch_command)

_observe = typer.Typer(no_args_is_help=True, help="Prometheus, Grafana and what they are told.")
_observe.command("up")(observe_up)
_observe.command("down")(observe_down)
_observe.command("export")(observe_export)
_observe.command("render")(observe_render)
app.add_typer(_observe, name="observe")

_image = typer.Typer(no_args_is_help=True, help="Container images: build them, pin what they are built on.")
_image.command("build")(image_build)
_image.command("lock")(image_lock)
app.add_typer(_image, name="image")

_patches = typer.Typer(no_args_is_help=True, help="Changes to pinned dependencies, each with a guard.")
_patches.command("check")(patches_check)
_patches.command("apply")(patches_apply)
app.add_typer(_patches, name="patches")


def main() -> None:
    """Entry point; turns an error that the user can act on into three lines and exit code 1."""
    try:
        app()
    except OutriderError as error:
        _fail(error)
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
            raise
        _fail(full_disk(error, [cache_root()]))
    except SystemExit as exit_:
        if exit_.code == _INTERRUPTED:
            typer.echo("interrupted: nothing is left running, finished work is kept", err=True)
        raise


def _fail(error: OutriderError) -> NoReturn:
    Console(stderr=True, highlight=False).print(f"[bold red]error:[/] {_escaped(str(error))}", soft_wrap=True)
    sys.exit(1)


def _escaped(text: str) -> str:
    return text.replace("[", r"\[")


if __name__ == "__main__":
    main()
