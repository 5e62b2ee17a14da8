"""The engine's log: bounded on disk, with the start-up kept for good, and read across its files.

Policy: three files of at most `SEGMENT_BYTES` each. The first that fills becomes `engine.start.log` and is
never thrown away, because it says what the engine chose for itself. Later ones become `engine.old.log`, each
replacing the one before. `engine.log` is always the one that grows.
"""

from __future__ import annotations

import os
import re
import sys
from io import FileIO
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

SEGMENT_BYTES = 16 * 2**20
_TAIL_BYTES = 256 * 2**10
_LINE_END = re.compile(r"\r\n|\n|\r")  # a progress bar ends its states with \r


def _start_of(path: Path) -> Path:
    return path.with_name(f"{path.stem}.start{path.suffix}")


def _old_of(path: Path) -> Path:
    return path.with_name(f"{path.stem}.old{path.suffix}")


class BoundedLog:
    """The writing end. It never raises: a full disk must not end the engine."""

    def __init__(self, path: Path, segment_bytes: int = SEGMENT_BYTES) -> None:
        self._path = path
        self._segment_bytes = segment_bytes
        self._lost_bytes = 0
        for stale in (_start_of(path), _old_of(path)):
            stale.unlink(missing_ok=True)
        self._file = self._open()

    def _open(self) -> FileIO:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        return FileIO(descriptor, "w")

    def write(self, data: bytes) -> None:
        """Append output; moves on to the next file at the end of a line."""
        try:
            size = self._file.tell()
            if size and size + len(data) > self._segment_bytes:
                end_of_line = data.find(b"\n") + 1
                self._put(data[:end_of_line])
                data = data[end_of_line:]
                self._rotate()
            self._put(data)
        except OSError as error:
            if not self._lost_bytes:
                print(f"log output is lost: {error}", file=sys.stderr, flush=True)
            self._lost_bytes += len(data)

    def _put(self, data: bytes) -> None:
        while data:
            data = data[self._file.write(data) :]

    def _rotate(self) -> None:
        start = _start_of(self._path)
        self._path.replace(_old_of(self._path) if start.exists() else start)
        self._file.close()
        self._file = self._open()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def split_lines(text: str) -> list[str]:
    """Lines without their ends and without empty ones at the end."""
    lines = _LINE_END.split(text)
    while lines and not lines[-1].strip():
        lines.pop()
    return lines


def read_lines(path: Path, last: int | None = None) -> list[str]:
    """Lines of a log across its files, oldest first; only the last ones if `last` is given."""
    files = [file for file in (_start_of(path), _old_of(path), path) if file.exists()]
    text = ""
    for file in reversed(files):
        with file.open("rb") as source:
            if last is not None:
                source.seek(max(0, os.fstat(source.fileno()).st_size - _TAIL_BYTES))
            text = source.read().decode("utf-8", errors="replace") + text
        if last is not None and text.count("\n") > last:
            break
    lines = split_lines(text)
    return lines if last is None else lines[-last:] if last > 0 else []


class LogFollower:
    """Reads what a log gained since the last look."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._inode = 0
        self._offset = 0
        self._partial = ""

    def new_lines(self) -> list[str]:
        """Complete lines written since the last call; a progress bar's states count as lines."""
        try:
            with self._path.open("rb") as source:
                facts = os.fstat(source.fileno())
                if facts.st_ino != self._inode or facts.st_size < self._offset:
                    self._inode, self._offset, self._partial = facts.st_ino, 0, ""
                source.seek(self._offset)
                data = source.read()
        except FileNotFoundError:
            return []
        self._offset += len(data)
        *complete, self._partial = _LINE_END.split(self._partial + data.decode("utf-8", errors="replace"))
        return [line for line in complete if line.strip()]
