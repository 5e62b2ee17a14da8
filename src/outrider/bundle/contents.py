"""What a bundle holds, as a plan: pure, so that `--dry-run` and the tests need neither Docker nor a network."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from outrider.images.build import TARGETS, image_tag
from outrider.images.wheels import WheelSet
from outrider.model_store.locate import expected

if TYPE_CHECKING:
    from pathlib import Path

    from outrider.stack import Stack


# What the node's virtual environment is made of, by the stack's engine build; each is locked for one version of Python.
VENVS: dict[str, dict[str, WheelSet]] = {
    "cpu": {**TARGETS["load"].wheels, **TARGETS["serve-cpu"].wheels},
    "cuda": {"serve-venv": WheelSet(("requirements/serve-venv.lock",), "3.12")},
}


class Form(StrEnum):
    """How the node will run the engine."""

    CONTAINER = "container"
    VENV = "venv"


class Models(StrEnum):
    """Whether weights travel along."""

    FILES = "files"
    MANIFEST = "manifest"


@dataclass(frozen=True, slots=True)
class Model:
    """A model directory.

    Attributes:
        name: directory below `models/` in the bundle and in the node's store.
        directory: where its files lie here; None: the engine knows only the repository.
        repository: its id, and `revision` its commit if pinned: what a manifest names.
    """

    name: str
    directory: Path | None
    repository: str
    revision: str | None


@dataclass(frozen=True, slots=True)
class Contents:
    """Everything that goes in.

    Attributes:
        form: container or venv.
        images: tags to save (container form).
        wheels: wheel sets by name (venv form).
        models: target and drafters.
        engine: `cuda` or `cpu`.
    """

    form: Form
    images: tuple[str, ...]
    wheels: dict[str, WheelSet]
    models: tuple[Model, ...]
    engine: str = "cpu"

    @property
    def python(self) -> str:
        """Version of Python that the node needs; empty for containers, which bring theirs."""
        return min((wheels.python for wheels in self.wheels.values()), default="")


def contents(stack: Stack, form: Form, version: str) -> Contents:
    """The plan of a stack's bundle."""
    engine = stack.engine.build
    if form is Form.CONTAINER:
        serve = "serve" if engine == "cuda" else "serve-cpu"
        return Contents(form, (image_tag(serve, version), image_tag("load", version)), {}, models(stack), engine)
    return Contents(form, (), dict(VENVS[engine]), models(stack), engine)


def models(stack: Stack) -> tuple[Model, ...]:
    """The target and every drafter of a stack, each once."""
    target = stack.target
    found = {
        target.model: Model(
            target.served_name if target.source else target.model,
            expected(stack, "baseline").model_dir,
            target.model,
            target.revision,
        )
    }
    for variant, chosen in stack.variants.items():
        drafter = chosen.speculation.drafter if chosen.speculation else None
        if drafter is not None:
            place = expected(stack, variant).drafter_dir
            found.setdefault(drafter.model, Model(drafter.model, place, drafter.model, drafter.revision))
    return tuple(found.values())
