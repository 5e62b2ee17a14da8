"""What differs between the layers of two images, entry by entry."""

from __future__ import annotations

import hashlib
import json
import tarfile
from typing import TYPE_CHECKING, NamedTuple

from tests.container.conftest import docker

if TYPE_CHECKING:
    from pathlib import Path


class Entry(NamedTuple):
    """One member of a layer."""

    mtime: float
    mode: int
    owner: tuple[int, int]
    kind: bytes
    content: str  # SHA-256 of a file, target of a link


def differences(one: str, other: str, room: Path) -> set[tuple[str, str]]:
    """(path, what) of every entry that is not the same in both: `only once`, or the names of the fields that differ."""
    archive = room / "images.tar"
    docker("save", "--output", str(archive), one, other)
    with tarfile.open(archive) as saved:
        listed = saved.extractfile("manifest.json")
        assert listed is not None
        layers = {image["RepoTags"][0]: image["Layers"] for image in json.load(listed)}
        assert len(layers[one]) == len(layers[other])
        found: set[tuple[str, str]] = set()
        for first, second in zip(layers[one], layers[other], strict=True):
            if first != second:
                found |= _compared(_entries(saved, first), _entries(saved, second))
    archive.unlink()
    return found


def _compared(first: dict[str, Entry], second: dict[str, Entry]) -> set[tuple[str, str]]:
    found = {(name, "only once") for name in first.keys() ^ second.keys()}
    for name in first.keys() & second.keys():
        fields = [f for f in Entry._fields if getattr(first[name], f) != getattr(second[name], f)]
        found |= {(name, ", ".join(fields))} if fields else set()
    return found


def _entries(saved: tarfile.TarFile, layer: str) -> dict[str, Entry]:
    entries = {}
    with tarfile.open(fileobj=saved.extractfile(layer)) as members:
        for member in members:
            file = members.extractfile(member) if member.isfile() else None
            content = hashlib.sha256(file.read()).hexdigest() if file else member.linkname
            owner = (member.uid, member.gid)
            entries[member.name] = Entry(member.mtime, member.mode, owner, member.type, content)
    return entries
