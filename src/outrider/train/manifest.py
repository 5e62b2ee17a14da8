"""What a finished stage leaves beside its output: inputs by hash, settings, versions, counts.

A stage's *key* is a hash over its settings and the keys of the stages it reads. A directory with a manifest of the
same key is finished; one with the same key in `started.json` may be resumed; any other content belongs to another
run and is removed before the stage starts.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from outrider.train.errors import TrainError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

MANIFEST = "manifest.json"
STARTED = "started.json"


@dataclass(frozen=True, slots=True)
class Manifest:
    """A finished stage.

    Attributes:
        stage: its name.
        key: hash over settings and inputs.
        settings: what it was asked to do.
        inputs: name of each input to its hash or key.
        versions: package to version.
        counts: what came out: samples, tokens, bytes, refusals, ...
        seconds: time spent, over all attempts that this directory saw.
    """

    stage: str
    key: str
    settings: dict[str, Any]
    inputs: dict[str, str]
    versions: dict[str, str]
    counts: dict[str, Any]
    seconds: float


def key_of(stage: str, settings: Mapping[str, Any], inputs: Mapping[str, str]) -> str:
    """Sixteen hex digits that identify a stage's work."""
    text = json.dumps([stage, settings, inputs], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def write_json(path: Path, data: Any) -> None:
    """Write a JSON file so that a reader sees all of it or none."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json.dumps(data, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    partial.replace(path)


def read_manifest(directory: Path) -> Manifest | None:
    """The manifest of a stage directory; None if the stage has not finished there.

    Raises:
        TrainError: there is one that cannot be read.
    """
    path = directory / MANIFEST
    try:
        return Manifest(**json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        raise TrainError(
            "a stage's manifest cannot be read",
            evidence=f"{path}: {error}",
            next_step="remove that stage's directory; it is made anew",
        ) from error


def begin(directory: Path, key: str) -> float:
    """Make a directory ready for a stage; gives the seconds that earlier attempts at the same work spent.

    Content that belongs to another key is removed.
    """
    spent = 0.0
    started = directory / STARTED
    if directory.exists():
        try:
            record = json.loads(started.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            record = {}
        if record.get("key") == key:
            spent = float(record.get("spent_s", 0.0))
        else:
            shutil.rmtree(directory)
    directory.mkdir(parents=True, exist_ok=True)
    note_spent(directory, key, spent)
    return spent


def note_spent(directory: Path, key: str, spent_s: float) -> None:
    """Record that work on `key` goes on here."""
    write_json(directory / STARTED, {"key": key, "spent_s": spent_s, "at": time.time()})


def finish(directory: Path, manifest: Manifest) -> None:
    """Mark a stage as finished."""
    write_json(directory / MANIFEST, asdict(manifest))
    (directory / STARTED).unlink(missing_ok=True)
