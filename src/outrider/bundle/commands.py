"""`outrider bundle`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from outrider import __version__
from outrider.bundle.contents import Form, Models
from outrider.bundle.errors import BundleError
from outrider.bundle.make import Order, make_bundle
from outrider.stack import find_stack

_ROOT = Path(__file__).resolve().parents[3]


def bundle_command(
    stack: Annotated[str, typer.Argument(help="Name of a shipped stack.")],
    out: Annotated[Path, typer.Argument(help="A new directory.")],
    form: Annotated[Form, typer.Option(help="How the node will run the engine.")] = Form.CONTAINER,
    models: Annotated[Models, typer.Option(help="Weights along, or only what they must be.")] = Models.FILES,
    part_mb: Annotated[int, typer.Option(min=1, help="Largest file, in 1e6 bytes.")] = 4000,
) -> None:
    """Gather what a node without network needs to serve a stack; `install.sh` goes along."""
    if not (_ROOT / "Dockerfile").is_file():
        raise BundleError("bundles are made from a checkout", next_step="clone the project")
    facts = make_bundle(find_stack(stack), Order(form, models, part_mb * 10**6, __version__), _ROOT, out, typer.echo)
    size = sum(path.stat().st_size for path in out.iterdir())
    typer.echo(f"{facts['stack']} as {facts['form']}: {len(list(out.iterdir()))} files, {size / 1e9:.2f} GB in {out}")
