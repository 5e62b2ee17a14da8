"""Where a run keeps what it did and measured, and what earlier runs took."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from outrider.provision.errors import ProvisionError
from outrider.state import results_dir

if TYPE_CHECKING:
    from pathlib import Path

    from outrider.provision.playbooks import Action


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """`results/provision/<timestamp>`: `run.json`, `artifacts/` of ansible-runner, `nodes/*.json`, `report.html`."""

    path: Path

    @property
    def nodes(self) -> Path:
        """Node reports, one JSON a node."""
        return self.path / "nodes"

    def write_summary(self, summary: dict[str, Any]) -> None:
        """Write `run.json`, atomically."""
        scratch = self.path / f".run.{os.getpid()}.tmp"
        scratch.write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
        scratch.replace(self.path / "run.json")


def make_run_directory() -> RunDirectory:
    """A new directory, readable by its owner only: artifacts hold what tasks printed on the nodes.

    Raises:
        ProvisionError: it cannot be made.
    """
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    parent = (results_dir() / "provision").resolve()
    for name in (stamp, *(f"{stamp}-{n}" for n in range(2, 100))):
        try:
            (parent / name / "nodes").mkdir(parents=True, mode=0o700, exist_ok=False)
        except FileExistsError:
            continue
        except OSError as error:
            raise ProvisionError(
                f"cannot make a run directory in {parent}: {error.strerror}",
                next_step="name another place with OUTRIDER_RESULTS",
            ) from error
        (parent / name).chmod(0o700)
        return RunDirectory(parent / name)
    raise ProvisionError("a hundred runs began in this second", evidence=str(parent))


def last_durations(action: Action, inventory: Path, *, check: bool) -> dict[str, float]:
    """Seconds of each phase in the newest run of this kind that came through; empty if there was none."""
    for file in sorted((results_dir() / "provision").glob("*/run.json"), reverse=True):
        try:
            run = json.loads(file.read_text(encoding="utf-8"))
            same = (run["action"], run["inventory"], run["check"]) == (action.value, str(inventory), check)
            if same and run["status"] == "done" and not run["partial"]:
                return {str(name): float(seconds) for name, seconds in run["phases"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue  # a run that was cut off while it wrote, or one of another version: no guide for this one
    return {}
