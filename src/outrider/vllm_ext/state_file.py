"""Carries the controller's figures from the engine core to the server that answers /metrics.

They are two processes of one engine. Both know the process that the engine began with: the server's own, or its parent
where there are several servers. A file under that number in a directory of this user is all that passes between them,
so no port is opened and none can be taken.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import stat
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import logging


# Memory that looks like a directory. On a disk, putting a file in another's place may wait for it: two milliseconds on
# ext4, in which the engine core does nothing else.
IN_MEMORY = Path("/dev/shm")  # noqa: S108 - what is made there is refused unless it is this user's alone


def state_path() -> Path:
    """Where this engine's figures lie; the same from its core and its server."""
    parent = multiprocessing.parent_process()
    first = parent.pid if parent is not None and parent.pid is not None else os.getpid()
    room = IN_MEMORY if os.access(IN_MEMORY, os.W_OK | os.X_OK) else Path(tempfile.gettempdir())
    return room / f"outrider-utility-{os.getuid()}" / f"{first}.json"


class StateFile:
    """Written by the engine core. A place that cannot be written costs the metrics, never the engine."""

    def __init__(self, path: Path, log: logging.Logger) -> None:
        """Nothing is written yet; what engines that are gone left behind is removed."""
        self._path, self._log = path, log
        self._works = True
        try:
            _own_directory(path.parent)
            _sweep(path.parent)
        except OSError as error:
            self._give_up(error)

    def write(self, data: dict[str, Any]) -> None:
        """Replace what stands there, whole."""
        if not self._works:
            return
        partial = self._path.with_suffix(".partial")
        try:
            partial.write_text(json.dumps(data | {"at": time.time()}, separators=(",", ":")), encoding="utf-8")
            partial.replace(self._path)
        except OSError as error:
            self._give_up(error)

    def remove(self) -> None:
        """Take the file away."""
        try:
            self._path.unlink(missing_ok=True)
        except OSError as error:
            self._log.warning("utility: %s stays behind: %s", self._path, error)

    def _give_up(self, error: OSError) -> None:
        self._works = False
        self._log.warning("utility: no metrics, %s cannot be written: %s", self._path, error)


def read_state(path: Path) -> dict[str, Any] | None:
    """What the engine core wrote last; None if there is nothing to read."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return data if isinstance(data, dict) else None


def _own_directory(directory: Path) -> None:
    """Make the directory; refuse one that another user could write to."""
    directory.mkdir(mode=0o700, exist_ok=True)
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o022:
        raise PermissionError(f"{directory} is not this user's own directory")


def _sweep(directory: Path) -> None:
    for file in directory.glob("*.json"):
        if file.stem.isdigit() and not Path(f"/proc/{file.stem}").exists():
            file.unlink(missing_ok=True)
