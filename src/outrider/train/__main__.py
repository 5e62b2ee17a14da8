"""`python -m outrider.train`: the training commands alone, on a machine that has no full install."""

from __future__ import annotations

import sys

import typer

from outrider.errors import OutriderError
from outrider.train.commands import train_plan, train_run


def main() -> None:
    """Run a command; errors that the user can act on print without a traceback and exit with 1."""
    app = typer.Typer(add_completion=False, no_args_is_help=True)
    app.callback()(lambda: None)
    app.command("plan")(train_plan)
    app.command("run")(train_run)
    try:
        app()
    except OutriderError as error:
        typer.echo(str(error), err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
