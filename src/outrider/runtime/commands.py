"""`outrider serve`, `stop`, `status` and `logs`."""

from __future__ import annotations

import datetime as dt
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from outrider.engine import adapter
from outrider.errors import OutriderError, RuntimeStateError
from outrider.model_store import locate
from outrider.preflight import run_preflight
from outrider.preflight.table import print_report
from outrider.runtime import base
from outrider.runtime.local import LocalRuntime
from outrider.runtime.ports import free_port
from outrider.runtime.signals import unwinding_on_signals
from outrider.stack import find_stack
from outrider.state import state_dir

StackName = Annotated[str, typer.Argument(help="Name of a shipped stack, or a YAML file.")]
VariantName = Annotated[str, typer.Argument(help="One of its variants.")]


def serve_command(
    stack: StackName,
    variant: VariantName,
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="Default: 8000, or the next free one.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show each step and start nothing.")] = False,
    accept: Annotated[list[str] | None, typer.Option(help="Preflight error to take as an advisory.")] = None,
) -> None:
    """Check a variant, start it in the background on loopback, and wait until it answers."""
    chosen = find_stack(stack)
    chosen.variant(variant)
    console = Console(highlight=False)
    located = locate(chosen, variant)
    report = run_preflight(
        chosen, variant, model_dir=located.model_dir, drafter_dir=located.drafter_dir, accept=accept or ()
    )
    if report.findings:
        print_report(report, console)
    if report.exit_code == 1:
        raise RuntimeStateError(
            f"{chosen.name}/{variant} would not work: preflight found errors",
            next_step="mend them, or take one as an advisory with --accept CODE",
        )
    engine = adapter(chosen.engine.name)
    launch = engine.launch(
        chosen,
        variant,
        host="127.0.0.1",
        port=port or free_port(8000),
        model_dir=located.model_dir,
        drafter_dir=located.drafter_dir,
    )
    name = f"{chosen.name}/{variant}"
    if dry_run:
        console.print(f"1. start {name}: {' '.join(launch.argv)}", soft_wrap=True)
        console.print(f"   with {' '.join(f'{key}={value}' for key, value in launch.env.items())}", soft_wrap=True)
        console.print(f"2. wait until http://127.0.0.1:{launch.port}{launch.health_path} answers")
        console.print("3. leave it running; `outrider stop` ends it")
        return
    with unwinding_on_signals(), _bar(console) as bar:
        task = bar.add_task(f"starting {name}", total=1.0, note="")

        def show(progress: base.Progress) -> None:
            left = f"about {progress.eta_s:.0f} s left" if progress.eta_s is not None else ""
            bar.update(task, completed=progress.share or 0.0, note=left)

        running = LocalRuntime(state_dir()).start(
            name,
            launch,
            detached=True,
            on_progress=show,
            labels={"stack_digest": chosen.digest()},
            weights=[path for path in (located.model_dir, located.drafter_dir) if path],
        )
    facts = engine.startup_facts(running.log_lines())
    console.print(f"[bold]{name}[/] answers at [bold]{running.url}/v1[/] as model {chosen.target.served_name}")
    console.print(
        f"engine {facts.version or '?'}, speculation {facts.spec_method or 'off'}, graphs {facts.graph_mode or '?'}, "
        f"{facts.kv_tokens or '?'} KV tokens; log {running.log_file}",
        soft_wrap=True,
    )


def stop_command(
    stack: Annotated[str | None, typer.Argument(help="Name of a stack; all engines without it.")] = None,
    variant: Annotated[str | None, typer.Argument(help="One variant; all of the stack without it.")] = None,
) -> None:
    """Stop engines and prove that nothing of them is left."""
    runtime = LocalRuntime(state_dir())
    wanted = [s for s in runtime.list() if _matches(s.name, stack, variant) and s.state is not base.State.ENDED]
    failed: list[OutriderError] = []
    for status in wanted:
        try:
            typer.echo(f"{status.name}: {runtime.stop(status.name).ending}")
        except OutriderError as error:
            failed.append(error)
    if not wanted:
        typer.echo("nothing to stop")
    if failed:
        raise failed[0]


def status_command() -> None:
    """Show every engine that was started here."""
    table = Table(header_style="bold")
    for column in ("engine", "state", "URL", "pid", "since", "ending"):
        table.add_column(column, overflow="fold")
    for status in LocalRuntime(state_dir()).list():
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
) -> None:
    """Print the last lines that an engine wrote."""
    for line in LocalRuntime(state_dir()).log_lines(f"{find_stack(stack).name}/{variant}", lines):
        typer.echo(line)


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
