"""The API key's file: checked before it is used, and placed so that the engine's user alone can read it."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from outrider.errors import RuntimeStateError

if TYPE_CHECKING:
    from pathlib import Path


def read_key(path: Path) -> str:
    """The key in a file.

    Raises:
        RuntimeStateError: the file is absent, empty, or can be read by every user of the machine.
    """
    try:
        mode = path.stat().st_mode
        key = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise RuntimeStateError(
            "the API key file cannot be read",
            evidence=f"{path}: {error}",
            next_step=f"make one: (umask 077; openssl rand -hex 24 > {path})",
        ) from error
    if mode & stat.S_IRWXO:
        raise RuntimeStateError(
            "every user of this machine can read the API key",
            evidence=f"{path} has mode {stat.S_IMODE(mode):04o}",
            next_step=f"chmod 600 {path}, and make a new key, because this one may be known",
        )
    if not key:
        raise RuntimeStateError("the API key file is empty", evidence=str(path), next_step="write a key into it")
    return key


def place_key(key: str, path: Path, uid: int, gid: int) -> Path:
    """Write the key where a container of that user reads it, mode 0400; gives the path."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o400)
    with os.fdopen(descriptor, "w", encoding="utf-8") as out:
        out.write(key + "\n")
    if os.geteuid() == 0:
        os.chown(draft, uid, gid)
    draft.replace(path)
    return path
