"""`outrider observe ...`: what stands around Prometheus and Grafana."""

from __future__ import annotations

import threading
from pathlib import Path  # noqa: TC003 - typer reads annotations when it runs
from typing import Annotated

import typer
from rich.console import Console

from outrider.errors import OutriderError
from outrider.observe import stack_up
from outrider.observe.exporter import CellsExporter
from outrider.runtime import discovery
from outrider.runtime.signals import unwinding_on_signals
from outrider.stack import find_stack
from outrider.state import results_dir

StackName = Annotated[str, typer.Argument(help="Name of a shipped stack, or a YAML file.")]
_PORT = 9477
_LOOK_S = 5.0  # how often runs are looked at


def observe_render(
    check: Annotated[bool, typer.Option("--check", help="Write nothing; fail if something is outdated.")] = False,
) -> None:
    """Render rules, alerts, dashboards and the GPU exporter's counters from code."""
    from outrider.observe import render  # noqa: PLC0415 - needs the extra `dashboards`

    changed = render.outdated() if check else render.write()
    for name in changed:
        typer.echo(name)
    if check and changed:
        raise OutriderError(
            f"{len(changed)} rendered files are outdated",
            evidence=", ".join(changed),
            next_step="outrider observe render",
        )


def observe_export(
    stack: StackName,
    runs: Annotated[
        list[Path] | None, typer.Option("--run", help="Directory of a run; default: every run of the stack.")
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="On loopback; 0: any.")] = _PORT,
    tpot_objective: Annotated[
        float | None, typer.Option(min=0.0001, help="Seconds per output token that users are promised.")
    ] = None,
) -> None:
    """Publish recorded cells, so that live figures can be held against them. Runs until it is ended."""
    chosen = find_stack(stack)
    exporter = CellsExporter(chosen, (lambda: runs) if runs else _every_run, tpot_objective)
    with unwinding_on_signals():
        for fault in exporter.refresh():
            typer.echo(f"left out: {fault}", err=True)
        used = exporter.serve(port)
        target = discovery.exporter_target(used)
        discovery.publish(target)
        typer.echo(f"{chosen.name}: recorded cells at http://127.0.0.1:{used}/metrics")
        ended = threading.Event()
        try:
            while not ended.wait(_LOOK_S):
                exporter.refresh()
        finally:
            discovery.drop(target)


def observe_up(stack: StackName = "smollm2-cpu") -> None:
    """Start Prometheus, Alertmanager, Grafana and exporters on this node."""
    profiles = stack_up.up(stack)
    console = Console(highlight=False)
    console.print(
        "Grafana      http://127.0.0.1:3000  (admin, password in [bold]" + str(stack_up.password_file()) + "[/])"
    )
    console.print("Prometheus   http://127.0.0.1:9090\nAlertmanager http://127.0.0.1:9093", soft_wrap=True)
    if "exporter" not in profiles:
        console.print(f"for speedups against recorded cells also run: outrider observe export {stack}", soft_wrap=True)


def observe_down() -> None:
    """Stop what `up` started; what was recorded is kept."""
    stack_up.down()


def _every_run() -> list[Path]:
    return sorted(file.parent for file in results_dir().glob("*/cells.jsonl"))
