"""Gathers the wheels of a venv bundle: whole locks, or what a node lacks of them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from outrider.bundle.errors import BundleError
from outrider.bundle.node_packages import (
    Entry,
    read_lock_entries,
    read_node_packages,
    read_trim,
    select,
    wheels_of,
)
from outrider.images.wheels import WheelSet, gather

if TYPE_CHECKING:
    from packaging.version import Version

    from outrider.bundle.contents import Contents

_INSTALLER = "requirements/installer.lock"


@dataclass(frozen=True, slots=True)
class Fit:
    """How a venv bundle is fitted to a node.

    Attributes:
        python: version of the node's Python; None: the one that the engine's lock is for.
        node_packages: what `pip list --format=freeze` printed there; None: nothing is there. Implies `trim`.
        trim: leave out what `requirements/*.trim` names.
    """

    python: str | None = None
    node_packages: Path | None = None
    trim: bool = False


@dataclass(frozen=True, slots=True)
class Wheelhouse:
    """What the venv part of a bundle holds.

    Attributes:
        sources: files by their name in the bundle.
        provided: packages that the node's own Python must have, and the version that it was said to have (or nothing).
        trimmed: packages of the lock that were left out.
    """

    sources: dict[str, Path] = field(default_factory=dict)
    provided: dict[str, str] = field(default_factory=dict)
    trimmed: tuple[str, ...] = ()


def require_fit(plan: Contents, fit: Fit, root: Path) -> dict[str, Version | None]:
    """Refuse what cannot be made, before anything is written; gives what the node has.

    Raises:
        BundleError: another Python than the locks are for, options that this bundle has no use for, or no such list.
    """
    if fit.python and fit.python != plan.python:
        raise BundleError(
            f"there is no venv bundle of this stack for Python {fit.python}",
            evidence=f"locked for Python {plan.python}" if plan.python else "a container brings its own",
            next_step=f"--python {plan.python}, which the node must have" if plan.python else "leave --python out",
        )
    if (fit.node_packages or fit.trim) and not _trim_lists(plan, root):
        raise BundleError(
            "only a venv bundle of a CUDA engine is fitted to a node",
            next_step="leave --node-packages and --trim out, or use --form venv with a CUDA stack",
        )
    return read_node_packages(fit.node_packages) if fit.node_packages else {}


def gather_venv(plan: Contents, fit: Fit, node: dict[str, Version | None], root: Path) -> Wheelhouse:
    """Fetch the wheels, by hash; those that are here already are not fetched again.

    Raises:
        ImageError: a wheel cannot be had.
    """
    build = root / "build" / "wheels"
    house = Wheelhouse()
    for name, wheels in plan.wheels.items():
        locks = {Path(lock).name: root / lock for lock in wheels.locks}
        if fit.node_packages or fit.trim:
            locks, provided, trimmed = _fitted(locks, node, root, build)
            house = replace(house, provided=house.provided | provided, trimmed=house.trimmed + trimmed)
        chosen = replace(wheels, locks=tuple(str(path) for path in locks.values()))
        gather(chosen, root, build / name)
        for lock, path in locks.items():
            house.sources[f"wheels/locks/{lock}"] = path
            house.sources.update((f"wheels/{file.name}", file) for file in wheels_of(_entries(path), build / name))
    gather(WheelSet((_INSTALLER,), plan.python), root, build / "installer")
    for file in wheels_of(_entries(root / _INSTALLER), build / "installer"):
        house.sources[f"installer/{file.name}"] = file
    return house


def _fitted(
    locks: dict[str, Path], node: dict[str, Version | None], root: Path, build: Path
) -> tuple[dict[str, Path], dict[str, str], tuple[str, ...]]:
    """Each lock without what the node has and without what is trimmed, written anew below `build`."""
    fitted: dict[str, Path] = {}
    provided: dict[str, str] = {}
    trimmed: tuple[str, ...] = ()
    for name, path in locks.items():
        trim = read_trim(_trim_list(root, name).read_text(encoding="utf-8"))
        found = select(_entries(path), node, trim)
        fitted[name] = build / "fitted" / name
        fitted[name].parent.mkdir(parents=True, exist_ok=True)
        fitted[name].write_text("".join(entry.text for entry in found.carried), encoding="utf-8")
        provided |= found.provided
        trimmed += found.trimmed
    return fitted, provided, trimmed


def _trim_list(root: Path, lock: str) -> Path:
    return root / "requirements" / Path(lock).with_suffix(".trim").name


def _trim_lists(plan: Contents, root: Path) -> bool:
    """Whether every lock of a plan can be fitted; false for a plan without wheels."""
    locks = [lock for wheels in plan.wheels.values() for lock in wheels.locks]
    return bool(locks) and all(_trim_list(root, lock).is_file() for lock in locks)


def _entries(lock: Path) -> tuple[Entry, ...]:
    return read_lock_entries(lock.read_text(encoding="utf-8"))
