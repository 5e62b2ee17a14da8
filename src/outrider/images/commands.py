"""`outrider image build` and `outrider image lock`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from outrider import __version__
from outrider.images.build import TARGETS, build
from outrider.images.lock import renew
from outrider.images.wheels import ImageError

ROOT = Path(__file__).resolve().parents[3]


def image_build(
    target: Annotated[str, typer.Argument(help=f"One of: {', '.join(TARGETS)}.")],
    base: Annotated[str | None, typer.Option(help="Another base image than images.lock names.")] = None,
    cache: Annotated[bool, typer.Option(help="Take layers of earlier builds where nothing changed.")] = True,
) -> None:
    """Gather an image's wheels and build it; the build itself needs no network."""
    typer.echo(f"built {build(target, __version__, _checkout(), base=base, cache=cache, on_step=typer.echo)}")


def image_lock() -> None:
    """Ask the registries which digests the tags of images.lock mean now, and write them down."""
    renew(_checkout() / "images.lock", lambda name, image: typer.echo(f"{name}: {image.reference}"))


def _checkout() -> Path:
    if not (ROOT / "Dockerfile").is_file():
        raise ImageError("images are built from a checkout", next_step="clone the project; an installed wheel has none")
    return ROOT
