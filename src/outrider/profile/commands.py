"""`outrider profile`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from outrider.profile.shares import shares_of
from outrider.profile.trace import read_trace

# Above this, the name tables miss something that matters.
_MUCH_UNKNOWN = 0.10


def profile_command(
    trace: Annotated[Path, typer.Argument(help="Trace of the engine: .pt.trace.json or .json.gz.")],
    steps: Annotated[int | None, typer.Option(min=1, help="Steps in it, where it has no markers.")] = None,
    batch: Annotated[int, typer.Option(min=1, help="Sequences that decoded together.")] = 1,
    context: Annotated[int, typer.Option(min=0, help="Tokens in each one's cache.")] = 512,
    json_to: Annotated[
        str | None, typer.Option("--json", metavar="PATH", help="Write the shares as JSON; - is standard output.")
    ] = None,
) -> None:
    """Say where the time of a decode step goes; `outrider predict run --profile` takes the JSON."""
    found = shares_of(read_trace(trace), steps=steps)
    if json_to:
        text = json.dumps(found.as_dict(batch=batch, context_tokens=context), indent=2)
        if json_to == "-":
            sys.stdout.write(text + "\n")
        else:
            Path(json_to).write_text(text + "\n", encoding="utf-8")
    if json_to == "-":
        return
    console = Console(highlight=False)
    step = (
        f"{found.step_s * 1000:.2f} ms a step, {found.steps} steps" if found.step_s else "no step markers: give --steps"
    )
    table = Table(title=f"{found.source}: {step}", title_justify="left", header_style="bold", box=SIMPLE_HEAD)
    table.add_column("part")
    table.add_column("share", justify="right")
    for name, share in sorted(found.shares.items(), key=lambda item: -item[1]):
        table.add_row(name, f"{share:.1%}")
    console.print(table)
    for name, share in found.unknown_names:
        console.print(f"unknown: {share:.1%} {name[:100]}")
    if found.shares["unknown"] > _MUCH_UNKNOWN:
        raise typer.Exit(3)
