"""Stage export: publish a checked head, or refuse it."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

from outrider.model_store import manifest as file_list
from outrider.train.check import REPORT
from outrider.train.errors import TrainError

if TYPE_CHECKING:
    from pathlib import Path

    from outrider.train.session import Session

# Served acceptance of the first token below this share of the offline one means that the engine does not run the
# head that was trained: wrong auxiliary layers, wrong norm flags, wrong vocabulary map.
_LEAST_AGREEMENT = 0.8


def export(session: Session, out: Path) -> dict[str, Any]:
    """Copy the candidate to `head/` with a file list, if it keeps its promises.

    Raises:
        TrainError: its acceptance length is under the floor, or the engine does not reproduce the offline figure.
    """
    checked = session.stage_dir("check")
    report = json.loads((checked / REPORT).read_text(encoding="utf-8"))
    require_good(report, session.recipe.floor, evidence=str(checked / REPORT))
    head = out / "head"
    shutil.rmtree(head, ignore_errors=True)
    shutil.copytree(checked / "head", head)
    facts = {
        "target": session.stack.target.model,
        "target_identity": session.target_identity(),
        "stack": session.stack.name,
        "check": f"acceptance length {judged(report):.2f} at k={report['k']} on held-out chat",
    }
    file_list.write(head, facts)
    return {"files": sorted(p.name for p in head.iterdir()), "bytes": report["head"]["bytes"]}


def judged(report: dict[str, Any]) -> float:
    """The acceptance length that the floor is about: held-out chat, else everything."""
    served = report["served"]
    return float((served.get("chat") or served["all"])["length"])


def require_good(report: dict[str, Any], floor: float, *, evidence: str) -> None:
    """Refuse a head that is under its floor or that the engine does not reproduce.

    Raises:
        TrainError: with both figures.
    """
    length = judged(report)
    if length < floor:
        raise TrainError(
            f"the head's acceptance length {length:.2f} is under its floor {floor:.2f}; it is not exported",
            evidence=evidence,
            next_step="train on more samples (tiny counts give low acceptance), longer, or lower training.floor",
        )
    offline = report["offline"]["conditional"][0]
    served = report["served"]["all"]["conditional"][0]
    if served < _LEAST_AGREEMENT * offline:
        raise TrainError(
            f"served acceptance of the first token is {served:.2f}, offline it is {offline:.2f}",
            evidence=evidence,
            next_step="the engine runs another head than was trained: compare auxiliary layers, norm flags and d2t",
        )
