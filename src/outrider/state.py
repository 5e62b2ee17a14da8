"""Where Outrider keeps what it makes: results in the working directory, engine state with the user."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from outrider.errors import OutriderError

if TYPE_CHECKING:
    from collections.abc import Iterable

_FULL_BYTES = 1 << 20  # less than this free counts as full


def results_dir() -> Path:
    """Parent of all runs: `OUTRIDER_RESULTS`, else `results` in the working directory."""
    return Path(os.environ.get("OUTRIDER_RESULTS", "results"))


def state_dir() -> Path:
    """State and logs of engines: `OUTRIDER_STATE`, else the user's state directory."""
    if own := os.environ.get("OUTRIDER_STATE"):
        return Path(own)
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "outrider"


def full_disk(error: OSError, places: Iterable[Path] = ()) -> OutriderError:
    """The error for a write that found no room; names those places, of Outrider's own and the given, that are full."""
    looked = (state_dir(), results_dir(), Path(tempfile.gettempdir()), Path.cwd(), *places)
    there = {next(p for p in (place, *place.parents) if p.is_dir()) for place in map(Path.absolute, looked)}
    full = [
        f"{path}: {free} bytes free" for path in sorted(there) if (free := shutil.disk_usage(path).free) < _FULL_BYTES
    ]
    return OutriderError(
        "a disk is full",
        evidence="; ".join([str(error), *full]),
        next_step="free it (`df -h` shows which); what was written in part is made again by the next run",
    )


def targets_dir() -> Path:
    """What Prometheus is told to scrape: `OUTRIDER_TARGETS`, else `targets` among the state."""
    return Path(os.environ.get("OUTRIDER_TARGETS") or state_dir() / "targets")
