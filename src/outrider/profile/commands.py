"""`outrider profile read` and `outrider profile capture`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from outrider.profile.capture import capture
from outrider.profile.shares import StepShares, shares_of
from outrider.profile.trace import read_trace
from outrider.runtime.local import LocalRuntime
from outrider.runtime.signals import unwinding_on_signals
from outrider.stack import find_stack
from outrider.state import results_dir, state_dir

# Above this, the name tables miss something that matters.
_MUCH_UNKNOWN = 0.10

JsonOption = Annotated[
    str | None, typer.Option("--json", metavar="PATH", help="Write the shares as JSON; - is standard output.")
]


def profile_read(
    trace: Annotated[Path, typer.Argument(help="Trace of the engine: .pt.trace.json or .json.gz.")],
    steps: Annotated[int | None, typer.Option(min=1, help="Steps in it, where it has no markers.")] = None,
    batch: Annotated[int, typer.Option(min=1, help="Sequences that decoded together.")] = 1,
    context: Annotated[int, typer.Option(min=0, help="Tokens in each one's cache.")] = 512,
    json_to: JsonOption = None,
) -> None:
    """Say where the time of a decode step goes; `outrider predict run --profile` takes the JSON."""
    found = shares_of(read_trace(trace), steps=steps)
    step = (
        f"{found.step_s * 1000:.2f} ms a step, {found.steps} steps" if found.step_s else "no step markers: give --steps"
    )
    _conclude(found, f"{found.source}: {step}", batch, context, json_to)


def profile_capture(
    stack: Annotated[str, typer.Argument(help="Name of a shipped stack, or a YAML file.")],
    variant: Annotated[str, typer.Argument(help="What to serve and record.")] = "baseline",
    batch: Annotated[int, typer.Option(min=1, help="Sequences that decode together.")] = 1,
    steps: Annotated[int, typer.Option(min=2, help="Steps to record.")] = 24,
    workload: Annotated[str, typer.Option(help="Prompts.")] = "chat",
    max_tokens: Annotated[int, typer.Option(min=2, help="Of each answer; must outlast the recorded steps.")] = 128,
    to: Annotated[
        Path | None, typer.Option(help="Directory for the engine's traces. Default: profile/ of the results.")
    ] = None,
    json_to: JsonOption = None,
) -> None:
    """Serve a variant with its engine's profiler on, record some of its steps, and say where their time goes."""
    chosen = find_stack(stack)
    chosen.variant(variant)
    console = Console(stderr=json_to == "-", highlight=False)
    directory = (to or results_dir() / "profile" / f"{chosen.name}-{variant}").resolve()
    with unwinding_on_signals():
        found = capture(
            chosen, variant, directory, LocalRuntime(state_dir()), workload=workload, batch=batch, steps=steps,
            max_tokens=max_tokens, on_step=lambda text: console.print(f"[dim]{text}[/]"),
        )  # fmt: skip
    step = f"{(found.shares.step_s or 0) * 1000:.2f} ms a step"
    if found.recorded_step_s:
        step += f" ({found.recorded_step_s * 1000:.2f} ms while {found.shares.steps} were recorded)"
    console.print(str(found.trace), soft_wrap=True)
    _conclude(found.shares, f"{chosen.name}/{variant}: {step}", found.batch, found.context_tokens, json_to)


def _conclude(found: StepShares, title: str, batch: int, context: int, json_to: str | None) -> None:
    if json_to:
        text = json.dumps(found.as_dict(batch=batch, context_tokens=context), indent=2)
        if json_to == "-":
            sys.stdout.write(text + "\n")
        else:
            Path(json_to).write_text(text + "\n", encoding="utf-8")
    if json_to != "-":
        _show(found, title, Console(highlight=False))
    if found.shares["unknown"] > _MUCH_UNKNOWN:
        raise typer.Exit(3)


def _show(found: StepShares, title: str, console: Console) -> None:
    console.print(title, soft_wrap=True)
    table = Table(header_style="bold", box=SIMPLE_HEAD)
    table.add_column("part")
    table.add_column("share", justify="right")
    for name, share in sorted(found.shares.items(), key=lambda item: -item[1]):
        table.add_row(name, f"{share:.1%}")
    console.print(table)
    for name, share in found.unknown_names:
        console.print(f"unknown: {share:.1%} {name[:100]}")
