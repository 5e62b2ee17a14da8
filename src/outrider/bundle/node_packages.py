"""What a node has already: which wheels of a lock a bundle must carry, and which the node's own Python provides.

A node that runs PyTorch holds gigabytes of CUDA libraries that need not travel. The rule errs towards carrying:
what the engine is built against exactly always travels, and what the node has in an older version does too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from outrider.bundle.errors import BundleError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

# What the engine's compiled code is built against exactly; torch 2.14 does not start with the NCCL that 2.11 takes.
BOUND = frozenset({"nvidia-nccl-cu13", "torch", "torchvision", "triton", "vllm"})
# CUDA's libraries keep their interface within a major release (docs.nvidia.com, CUDA Compatibility, minor versions),
# and so do cuDNN's; they are most of what a node has.
_CUDA_LIBRARY = re.compile(r"nvidia-(?!ml-py$)[a-z0-9-]+")
_REQUIREMENT = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^]]*\])?==([^\s;\\]+)")
_LISTED = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:==\s*(\S+)|@\s*\S+)?")


@dataclass(frozen=True, slots=True)
class Entry:
    """One requirement of a lock.

    Attributes:
        name: canonical name.
        version: pinned version.
        text: its lines, hashes included.
    """

    name: str
    version: Version
    text: str


@dataclass(frozen=True, slots=True)
class Selection:
    """A lock, divided.

    Attributes:
        carried: what goes into the bundle.
        provided: names that the node's own Python must have, with the version that it was said to have, if any.
        trimmed: names that are left out because serving does not need them.
    """

    carried: tuple[Entry, ...]
    provided: dict[str, str]
    trimmed: tuple[str, ...]


def read_lock_entries(text: str) -> tuple[Entry, ...]:
    """The requirements of a compiled lock, in its order."""
    return tuple(
        Entry(canonicalize_name(match[1]), Version(match[2]), block.rstrip() + "\n")
        for block in re.split(r"\n(?=[^\s#])", text)
        if (match := _REQUIREMENT.match(block))
    )


def read_node_packages(path: Path) -> dict[str, Version | None]:
    """Names and, where they are given, versions that `pip list --format=freeze` printed on the node.

    Raises:
        BundleError: the file cannot be read, or a line is no package.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BundleError("the node's package list cannot be read", evidence=f"{path}: {error}") from error
    found: dict[str, Version | None] = {}
    for number, line in enumerate(lines, start=1):
        words = line.partition("#")[0].strip()
        if not words or words.startswith("-e "):  # an editable install has no version that a lock could mean
            continue
        match = _LISTED.fullmatch(words)
        try:
            version = Version(match[2]) if match and match[2] else None
        except InvalidVersion:
            match = None
        if match is None:
            raise BundleError(
                "the node's package list has a line that is no package",
                evidence=f"{path}:{number}: {words}",
                next_step="write it on the node with: python3 -m pip list --format=freeze",
            )
        found[canonicalize_name(match[1])] = version
    if not found:
        raise BundleError("the node's package list is empty", evidence=str(path), next_step="or leave it out")
    return found


def read_trim(text: str) -> frozenset[str]:
    """The names of a trim list: `name  # why`, one a line."""
    names = (line.partition("#")[0].strip() for line in text.splitlines())
    return frozenset(canonicalize_name(name) for name in names if name)


def select(entries: Iterable[Entry], node: Mapping[str, Version | None], trim: frozenset[str]) -> Selection:
    """Divide a lock into what is carried, what the node provides and what is left out."""
    carried, provided, trimmed = [], {}, []
    for entry in entries:
        if entry.name in node and _is_provided(entry, node[entry.name]):
            provided[entry.name] = str(node[entry.name] or "")
        elif entry.name in trim:
            trimmed.append(entry.name)
        else:
            carried.append(entry)
    return Selection(tuple(carried), provided, tuple(trimmed))


def _is_provided(entry: Entry, there: Version | None) -> bool:
    """Whether the node's version will do; a name without version is believed, but for what the engine is bound to."""
    if entry.name in BOUND:
        return there is not None and there.public == entry.version.public
    if there is None:
        return True
    if _CUDA_LIBRARY.fullmatch(entry.name):
        return there.major == entry.version.major
    return there >= entry.version


def wheels_of(entries: Iterable[Entry], directory: Path) -> list[Path]:
    """The wheels of a directory that a lock means; others may lie there, of earlier locks.

    Raises:
        BundleError: a wheel of the lock is not there.
    """
    wanted = {(entry.name, entry.version) for entry in entries}
    found: dict[tuple[str, Version], Path] = {
        parse_wheel_filename(path.name)[:2]: path for path in directory.glob("*.whl")
    }
    if missing := sorted(f"{name} {version}" for name, version in wanted - found.keys()):
        raise BundleError("wheels are missing", evidence=f"{directory}: {', '.join(missing)}")
    return sorted(found[key] for key in wanted)
