"""A directory's list of files with sizes and SHA-256, so that a damaged cache is noticed before it is served."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from outrider.errors import ModelError

if TYPE_CHECKING:
    from pathlib import Path

NAME = "outrider-manifest.json"


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, as hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write(directory: Path, facts: dict[str, str]) -> None:
    """List every file of `directory`; `facts` say where they came from."""
    files = {
        str(path.relative_to(directory)): {"size": path.stat().st_size, "sha256": sha256_of(path)}
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name != NAME
    }
    text = json.dumps({"from": facts, "files": files}, indent=2, sort_keys=True)
    (directory / NAME).write_text(text + "\n", encoding="utf-8")


def check(directory: Path) -> list[str]:
    """What differs from the manifest, one line a file; empty if all is intact.

    Raises:
        ModelError: there is no manifest, or it cannot be read.
    """
    try:
        listed = dict(json.loads((directory / NAME).read_text(encoding="utf-8"))["files"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(
            "the manifest of a model directory cannot be read",
            evidence=f"{directory / NAME}: {error}",
            next_step="remove the directory; it is made anew",
        ) from error
    faults: list[str] = []
    for name, expected in listed.items():
        path = directory / name
        if not path.is_file():
            faults.append(f"{name}: missing")
        elif path.stat().st_size != expected["size"]:
            faults.append(f"{name}: {path.stat().st_size} bytes instead of {expected['size']}")
        elif sha256_of(path) != expected["sha256"]:
            faults.append(f"{name}: SHA-256 differs")
    return faults
