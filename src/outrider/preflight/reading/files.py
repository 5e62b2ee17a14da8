"""Where a checkpoint's files are read from: a directory here, a repository elsewhere (remote.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from outrider.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Files(Protocol):
    """The files of one checkpoint; a reader never fetches more of a file than it is asked for."""

    label: str

    def names(self) -> frozenset[str]:
        """Names of all files, relative to the checkpoint."""
        ...

    def size(self, name: str) -> int | None:
        """Size in bytes; None if there is no such file."""
        ...

    def read(self, name: str, start: int, length: int) -> bytes:
        """At most `length` bytes from `start`; fewer at the end of the file.

        Raises:
            ModelError: the file is absent or cannot be read.
        """
        ...


class LocalFiles:
    """A checkpoint in a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.label = str(directory)

    def names(self) -> frozenset[str]:
        """Names of the regular files directly in the directory."""
        try:
            return frozenset(path.name for path in self._directory.iterdir() if path.is_file())
        except OSError as error:
            raise ModelError(
                f"cannot list {self._directory}: {error.strerror}", next_step="check the path and its permissions"
            ) from error

    def size(self, name: str) -> int | None:
        """Size of a file, following links."""
        try:
            return (self._directory / name).stat().st_size
        except OSError:
            return None

    def read(self, name: str, start: int, length: int) -> bytes:
        """Read a range without buffering what was not asked for."""
        try:
            with (self._directory / name).open("rb", buffering=0) as file:
                file.seek(start)
                return _read_fully(file.read, length)
        except OSError as error:
            raise ModelError(f"cannot read {name}: {error.strerror}", evidence=str(self._directory)) from error


def _read_fully(read: Callable[[int], bytes | None], length: int) -> bytes:
    parts: list[bytes] = []
    left = length
    while left > 0:
        part = read(left)
        if not part:
            break
        parts.append(part)
        left -= len(part)
    return b"".join(parts)
