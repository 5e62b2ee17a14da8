"""`outrider preflight`: find the files, read the node report, check, print."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from outrider.errors import OutriderError
from outrider.model_store import expected, prepare
from outrider.preflight.engine_reading import read_running
from outrider.preflight.facts.node import read_node_facts
from outrider.preflight.run import run_preflight
from outrider.preflight.table import print_report
from outrider.stack import Stack, find_stack

if TYPE_CHECKING:
    from collections.abc import Sequence


def preflight_command(
    stack: Annotated[str, typer.Argument(help="name of a shipped stack, or a path to a stack file")],
    variant: Annotated[str | None, typer.Argument(help="one variant; all without it")] = None,
    *,
    json_path: Annotated[
        str | None, typer.Option("--json", metavar="PATH", help="write the report as JSON; - is standard output")
    ] = None,
    node: Annotated[Path | None, typer.Option(help="node report to compare with", metavar="FILE")] = None,
    model_dir: Annotated[Path | None, typer.Option(help="the target's files, instead of the store's")] = None,
    drafter_dir: Annotated[Path | None, typer.Option(help="the drafter's files, instead of the store's")] = None,
    remote: Annotated[
        bool, typer.Option("--remote", help="read configs and headers of repositories; weights stay there")
    ] = False,
    running: Annotated[
        str | None, typer.Option(metavar="URL", help="compare with the engine that serves VARIANT there")
    ] = None,
    log: Annotated[Path | None, typer.Option(help="start-up log of that engine", metavar="FILE")] = None,
    accept: Annotated[
        list[str] | None, typer.Option(metavar="CODE", help="take this error as an advisory; may be repeated")
    ] = None,
) -> None:
    """Say whether a stack will work, before anything is loaded. Exit 0 fine, 1 errors, 3 advisories only."""
    raise typer.Exit(
        preflight(
            stack,
            variant,
            json_path=json_path,
            node=node,
            model_dir=model_dir,
            drafter_dir=drafter_dir,
            remote=remote,
            running=running,
            log=log,
            accept=accept or (),
        )
    )


def preflight(
    stack_name: str,
    variant: str | None,
    *,
    json_path: str | None = None,
    node: Path | None = None,
    model_dir: Path | None = None,
    drafter_dir: Path | None = None,
    remote: bool = False,
    running: str | None = None,
    log: Path | None = None,
    accept: Sequence[str] = (),
) -> int:
    """Check and print; returns the exit code.

    Raises:
        OutriderError: stack, node report or model store cannot be read, or the arguments contradict each other.
    """
    stack = find_stack(stack_name)
    if running is not None and variant is None:
        raise OutriderError("--running compares one variant", next_step="name it: outrider preflight STACK VARIANT")
    if log is not None and running is None:
        raise OutriderError("--log belongs to --running", next_step="give the engine's URL with --running")
    facts = read_node_facts(node) if node is not None else None
    names = [variant] if variant is not None else list(stack.variants)
    report = run_preflight(
        stack,
        variant,
        node=facts,
        model_dir=model_dir or prepare(stack, _say),
        drafter_dir=drafter_dir or _drafter_dirs(stack, names),
        remote=remote,
        running=read_running(stack.engine_of(variant).name, running, log=log) if running and variant else None,
        accept=accept,
    )
    if json_path is not None:
        text = report.model_dump_json(indent=1, by_alias=True) + "\n"
        if json_path == "-":
            sys.stdout.write(text)
            return report.exit_code
        _write(Path(json_path), text)
    print_report(report, Console())
    return report.exit_code


def _say(text: str, _share: float) -> None:
    """Progress of making the embedded target; on standard error, since the report may go to standard output."""
    Console(stderr=True).print(text, markup=False)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise OutriderError(f"cannot write {path}: {error.strerror}", next_step="give a path in a directory") from error


def _drafter_dirs(stack: Stack, names: list[str]) -> dict[str, Path]:
    """Directories of drafters that the store has or should have, by variant."""
    found: dict[str, Path] = {}
    for name in names:
        spec = stack.variant(name).speculation
        if spec is not None and spec.drafter is not None:
            directory = expected(stack, name).drafter_dir
            if directory is not None:
                found[name] = directory
    return found
