"""`outrider serve`, `stop`, `status` and `logs`."""

from __future__ import annotations

import datetime as dt
import os
import time
from pathlib import Path  # noqa: TC003 - typer reads annotations when it runs
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from outrider.engine import adapter_of
from outrider.errors import OutriderError, RuntimeStateError
from outrider.model_store import expected, locate, prepare
from outrider.preflight import run_preflight
from outrider.preflight.table import print_report
from outrider.runtime import base, discovery
from outrider.runtime.choice import Kind, Settings, candidate, runtime_for
from outrider.runtime.entrypoint import KEY_VARIABLE
from outrider.runtime.ports import LOOPBACK, free_port
from outrider.runtime.secret import read_key
from outrider.runtime.signals import unwinding_on_signals
from outrider.runtime.switch import Candidate, Switch, SwitchOptions
from outrider.stack import find_stack
from outrider.state import state_dir

if TYPE_CHECKING:
    from outrider.stack import Stack

StackName = Annotated[str, typer.Argument(help="Name of a shipped stack, or a YAML file.")]
VariantName = Annotated[str, typer.Argument(help="One of its variants.")]
RuntimeKind = Annotated[Kind, typer.Option("--runtime", help="How engines are run.")]
_FIRST_PORT = 8000


def serve_command(
    stack: StackName,
    variant: VariantName,
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="Default: 8000, or the next free one.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show each step and start nothing.")] = False,
    accept: Annotated[list[str] | None, typer.Option(help="Preflight error to take as an advisory.")] = None,
    runtime: RuntimeKind = Kind.LOCAL,
    switch: Annotated[
        bool | None,
        typer.Option("--switch/--beside", help="Take the place of the stack's running variant; default but for local."),
    ] = None,
    canaries: Annotated[bool, typer.Option(help="Let a switched variant prove itself, else roll back.")] = True,
    al_floor: Annotated[float | None, typer.Option(min=1, help="Acceptance length that it must reach.")] = None,
    listen: Annotated[str, typer.Option(help="Address; anything but loopback needs an API key.")] = "127.0.0.1",
    api_key_file: Annotated[Path | None, typer.Option(help="File with the API key (compose, systemd).")] = None,
    image: Annotated[str | None, typer.Option(help="Another image than this version's (compose).")] = None,
    user: Annotated[str, typer.Option(help="Account that runs the engine (systemd).")] = "outrider",
) -> None:
    """Check a variant, start it in the background, and wait until it answers.

    With --switch it takes the place of the variant that its stack serves now, proves itself by canaries, and makes
    room for the old one again if it fails.
    """
    chosen = find_stack(stack)
    chosen.variant(variant)
    console = Console(highlight=False)
    settings = Settings(listen, image, api_key_file, user, _directories(chosen))
    key = _key(chosen, variant, kind=runtime, settings=settings)
    _check(chosen, variant, accept or [], console)
    with unwinding_on_signals(), _bar(console) as bar:
        task = bar.add_task(f"{chosen.name}/{variant}", total=1.0, note="", visible=False)

        def show(progress: base.Progress) -> None:
            left = f"about {progress.eta_s:.0f} s left" if progress.eta_s is not None else ""
            bar.update(task, completed=progress.share or 0.0, note=left, visible=True)

        began = time.monotonic()

        def step(text: str) -> None:
            console.print(f"[dim]{time.monotonic() - began:6.1f} s[/]  {escape(text)}", soft_wrap=True)

        engines = runtime_for(runtime, chosen, settings)
        replaces = switch if switch is not None else runtime is not Kind.LOCAL
        mover = Switch(
            chosen,
            engines,
            lambda name, number: _candidate(runtime, chosen, name, number, settings),
            state_dir=state_dir(),
            options=SwitchOptions(listen, key, canaries and replaces, al_floor),
            on_step=step if replaces else lambda _text: None,
            on_progress=show,
        )
        before = [s for s in mover.running() if s.name != f"{chosen.name}/{variant}"] if replaces else []
        number = port or (before[0].port if before else free_port(_FIRST_PORT, listen))
        if dry_run:
            _show_steps(mover.steps(variant, number, beside=not replaces), console)
            return
        if replaces:
            running = mover.to(variant, number)
        else:
            ready = _candidate(runtime, chosen, variant, number, settings)
            running = engines.start(
                f"{chosen.name}/{variant}",
                ready.launch,
                host=listen,
                detached=True,
                on_progress=show,
                labels={"stack_digest": chosen.digest()},
                weights=ready.weights,
            )
    _introduce(chosen, running, console)


def stop_command(
    stack: Annotated[str | None, typer.Argument(help="Name of a stack; all engines without it.")] = None,
    variant: Annotated[str | None, typer.Argument(help="One variant; all of the stack without it.")] = None,
    runtime: RuntimeKind = Kind.LOCAL,
) -> None:
    """Stop engines and prove that nothing of them is left."""
    engines = runtime_for(runtime)
    known = [s for s in engines.list() if _matches(s.name, stack, variant)]
    wanted = [s for s in known if s.state is not base.State.ENDED]
    for status in known:
        if status.state is base.State.ENDED:  # one that died by itself is a target until somebody has seen it
            discovery.drop_engine(status.name)
    failed: list[OutriderError] = []
    for status in wanted:
        try:
            typer.echo(f"{status.name}: {engines.stop(status.name).ending}")
        except OutriderError as error:
            failed.append(error)
    if not wanted:
        typer.echo("nothing to stop")
    if failed:
        raise failed[0]


def status_command(runtime: RuntimeKind = Kind.LOCAL) -> None:
    """Show every engine that was started here."""
    table = Table(header_style="bold")
    for column in ("engine", "state", "URL", "pid", "since", "ending"):
        table.add_column(column, overflow="fold")
    for status in runtime_for(runtime).list():
        began = dt.datetime.fromtimestamp(status.started_at or 0, dt.UTC)
        alive = status.state in {base.State.STARTING, base.State.READY}
        table.add_row(
            status.name,
            status.state.value,
            status.url if alive else "",
            str(status.pid) if alive else "",
            f"{began:%Y-%m-%d %H:%M} UTC",
            status.ending or "",
        )
    Console(highlight=False).print(table)


def logs_command(
    stack: StackName,
    variant: VariantName,
    lines: Annotated[int, typer.Option(min=1, help="How many of the last lines.")] = 50,
    runtime: RuntimeKind = Kind.LOCAL,
) -> None:
    """Print the last lines that an engine wrote."""
    for line in runtime_for(runtime).log_lines(f"{find_stack(stack).name}/{variant}", lines):
        typer.echo(line)


def _directories(stack: Stack) -> tuple[Path, ...]:
    """Directories that the stack's variants read: a rollback needs those of the variant before."""
    located = [expected(stack, variant) for variant in stack.variants]
    found = {path for place in located for path in (place.model_dir, place.drafter_dir) if path}
    return tuple(sorted(found))


def _key(stack: Stack, variant: str, *, kind: Kind, settings: Settings) -> str | None:
    """The API key, checked; where there is none, nothing but loopback may be listened on."""
    engine = adapter_of(stack, variant)
    if engine.key_variable is None:
        if settings.api_key_file is not None or settings.host not in LOOPBACK:
            raise RuntimeStateError(
                f"{engine.name} takes an API key on its command line only, which every user of the machine can read",
                next_step="serve it on loopback without a key, and put a proxy with one in front",
            )
        return None
    if settings.api_key_file is None:
        key = os.environ.get(KEY_VARIABLE) if kind is Kind.LOCAL else None
        if not key and settings.host not in LOOPBACK:
            raise RuntimeStateError(
                f"an engine without an API key would listen on {settings.host}",
                next_step="give --api-key-file, or listen on loopback and put a proxy in front",
            )
        return key
    if kind is Kind.LOCAL:
        raise RuntimeStateError(
            "the local runtime takes its API key from the environment",
            next_step="set VLLM_API_KEY, or choose --runtime compose or systemd",
        )
    return read_key(settings.api_key_file)


def _check(stack: Stack, variant: str, accepted: list[str], console: Console) -> None:
    """Preflight: raises if the variant would not work."""
    drafter_dir = expected(stack, variant).drafter_dir  # one that is not there is a finding
    report = run_preflight(stack, variant, model_dir=prepare(stack), drafter_dir=drafter_dir, accept=accepted)
    if report.findings:
        print_report(report, console)
    if report.exit_code == 1:
        raise RuntimeStateError(
            f"{stack.name}/{variant} would not work: preflight found errors",
            next_step="mend them, or take one as an advisory with --accept CODE",
        )


def _candidate(kind: Kind, stack: Stack, variant: str, port: int, settings: Settings) -> Candidate:
    return candidate(kind, stack, variant, locate(stack, variant), port, settings)


def _show_steps(steps: list[str], console: Console) -> None:
    for number, text in enumerate(steps, 1):
        console.print(f"{number}. {escape(text)}", soft_wrap=True)
    console.print(f"{len(steps) + 1}. leave it running; `outrider stop` ends it")


def _introduce(stack: Stack, running: base.Running, console: Console) -> None:
    facts = adapter_of(stack, running.name.rpartition("/")[2]).startup_facts(running.log_lines())
    console.print(
        f"[bold]{running.name}[/] answers at [bold]{running.url}/v1[/] as model {stack.target.served_name}",
        soft_wrap=True,
    )
    console.print(
        f"engine {facts.version or '?'}, speculation {facts.spec_method or 'off'}, graphs {facts.graph_mode or '?'}, "
        f"{facts.kv_tokens or '?'} KV tokens; log {running.log_file or 'by `outrider logs`'}",
        soft_wrap=True,
    )


def _matches(name: str, stack: str | None, variant: str | None) -> bool:
    own_stack, _, own_variant = name.rpartition("/")
    return (stack is None or own_stack == stack) and (variant is None or own_variant == variant)


def _bar(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=28),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )
