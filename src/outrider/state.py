"""Where Outrider keeps what it makes: results in the working directory, engine state with the user."""

from __future__ import annotations

import os
from pathlib import Path


def results_dir() -> Path:
    """Parent of all runs: `OUTRIDER_RESULTS`, else `results` in the working directory."""
    return Path(os.environ.get("OUTRIDER_RESULTS", "results"))


def state_dir() -> Path:
    """State and logs of engines: `OUTRIDER_STATE`, else the user's state directory."""
    if own := os.environ.get("OUTRIDER_STATE"):
        return Path(own)
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "outrider"


def targets_dir() -> Path:
    """What Prometheus is told to scrape: `OUTRIDER_TARGETS`, else `targets` among the state."""
    return Path(os.environ.get("OUTRIDER_TARGETS") or state_dir() / "targets")
