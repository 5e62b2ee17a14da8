"""`outrider bundle`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from outrider import __version__
from outrider.bundle.contents import Form, Models
from outrider.bundle.errors import BundleError
from outrider.bundle.make import Order, make_bundle
from outrider.bundle.venv_wheels import Fit
from outrider.stack import find_stack

_ROOT = Path(__file__).resolve().parents[3]


def bundle_command(
    stack: Annotated[str, typer.Argument(help="Name of a shipped stack.")],
    out: Annotated[Path, typer.Argument(help="A new directory.")],
    form: Annotated[Form, typer.Option(help="How the node will run the engine.")] = Form.CONTAINER,
    models: Annotated[Models, typer.Option(help="Weights along, or only what they must be.")] = Models.FILES,
    part_mb: Annotated[int, typer.Option(min=1, help="Largest file, in 1e6 bytes.")] = 4000,
    python: Annotated[str | None, typer.Option(help="Version of the node's Python, 3.12; venv form.")] = None,
    node_packages: Annotated[
        Path | None,
        typer.Option(help="What `pip list --format=freeze` printed on the node: stays there; implies --trim."),
    ] = None,
    trim: Annotated[bool, typer.Option("--trim", help="Leave out what requirements/serve-venv.trim names.")] = False,
) -> None:
    """Gather what a node without network needs to serve a stack; `install.sh` goes along."""
    if not (_ROOT / "Dockerfile").is_file():
        raise BundleError("bundles are made from a checkout", next_step="clone the project")
    order = Order(form, models, part_mb * 10**6, __version__, Fit(python, node_packages, trim))
    facts = make_bundle(find_stack(stack), order, _ROOT, out, typer.echo)
    size = sum(path.stat().st_size for path in out.iterdir())
    typer.echo(f"{facts['stack']} as {facts['form']}: {len(list(out.iterdir()))} files, {size / 1e9:.2f} GB in {out}")
