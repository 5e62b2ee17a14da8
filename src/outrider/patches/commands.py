"""`outrider patches check` and `outrider patches apply`: plain functions, registered by the command line."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from outrider.engine.vllm import engine_python
from outrider.patches.ledger import PatchError, default_directory, load_ledger
from outrider.patches.state import State, apply, check
from outrider.train.session import train_python

if TYPE_CHECKING:
    from outrider.patches.state import Status

_WRONG = (State.DRIFTED, State.OTHER_VERSION)


def _pythons(given: list[str] | None) -> list[str]:
    return given or [engine_python(), train_python(), sys.executable]


def patches_check(
    python: Annotated[
        list[str] | None, typer.Option(help="interpreter to look into; else engine's and training's")
    ] = None,
    directory: Annotated[Path | None, typer.Option(help="directory of ledger.yaml")] = None,
    json_path: Annotated[str | None, typer.Option("--json", help="write the states; - is standard output")] = None,
) -> None:
    """Compare every known change with what is installed: 0 as known, 3 something is to apply, 1 upstream drifted."""
    place = directory or default_directory()
    found = check(load_ledger(place), _pythons(python))
    if json_path:
        _write(json_path, found)
    if json_path != "-":
        _show(found)
    if any(status.state in _WRONG for status in found):
        raise typer.Exit(1)
    if any(status.state is State.TO_APPLY for status in found):
        raise typer.Exit(3)


def patches_apply(
    python: Annotated[
        list[str] | None, typer.Option(help="interpreter to look into; else engine's and training's")
    ] = None,
    directory: Annotated[Path | None, typer.Option(help="directory of ledger.yaml")] = None,
) -> None:
    """Apply what is to apply; refuses to touch anything while a guarded place has drifted."""
    place = directory or default_directory()
    found = check(load_ledger(place), _pythons(python))
    if drifted := [s for s in found if s.entry.kind == "patch" and s.state in _WRONG]:
        raise PatchError(
            f"{len(drifted)} patched places changed upstream; nothing was applied",
            evidence="\n".join(f"{s.entry.id}: {s.evidence}" for s in drifted),
            next_step="compare with the ledger's reason and drop_when; renew the patch or drop the entry",
        )
    for status in found:
        for path in apply(status, place):
            typer.echo(f"{status.entry.id}: {path}")


def _write(place: str, found: list[Status]) -> None:
    rows = [
        {"id": s.entry.id, "kind": s.entry.kind, "state": s.state.value, "evidence": s.evidence,
         "reason": s.entry.reason, "drop_when": s.entry.drop_when}
        for s in found
    ]  # fmt: skip
    text = json.dumps(rows, indent=2)
    if place == "-":
        typer.echo(text)
    else:
        Path(place).write_text(text + "\n", encoding="utf-8")


def _show(found: list[Status]) -> None:
    table = Table()
    for column in ("change", "kind", "state", "evidence"):
        table.add_column(column, overflow="fold")
    for s in found:
        table.add_row(s.entry.id, s.entry.kind, s.state.value, s.evidence)
    Console().print(table)
