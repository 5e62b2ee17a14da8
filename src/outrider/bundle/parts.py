"""Cuts a stream into checksummed parts of a chosen size, and writes the list that a shell can check.

A node without network often gets its files over media with a size limit; a part that arrives damaged is named.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

SUMS = "SHA256SUMS"
_CHUNK = 1 << 20


def split(source: BinaryIO, directory: Path, name: str, part_bytes: int) -> list[Path]:
    """Write what `source` yields as `name.000`, `name.001`, ... of at most `part_bytes` each; gives the paths."""
    parts: list[Path] = []
    data = source.read(min(_CHUNK, part_bytes))
    while data:
        part = directory / f"{name}.{len(parts):03d}"
        parts.append(part)
        left = part_bytes
        with part.open("wb") as out:
            while data and left:
                out.write(data)
                left -= len(data)
                data = source.read(min(_CHUNK, left)) if left else b""
        if not left:
            data = source.read(min(_CHUNK, part_bytes))
    return parts


def write_sums(directory: Path, on_file: Callable[[str], None] = lambda _name: None) -> Path:
    """List every file below `directory` with its SHA-256, in the form that `sha256sum --check` reads."""
    lines = []
    for path in files_of(directory):
        name = str(path.relative_to(directory))
        on_file(name)
        with path.open("rb") as file:
            lines.append(f"{hashlib.file_digest(file, 'sha256').hexdigest()}  {name}\n")
    sums = directory / SUMS
    sums.write_text("".join(lines), encoding="utf-8")
    return sums


def files_of(directory: Path) -> Iterable[Path]:
    """Every file below a directory but the list itself, in order."""
    return sorted(path for path in directory.rglob("*") if path.is_file() and path.name != SUMS)
