"""Stage check: offline acceptance against acceptance when served, on families that training never saw."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from outrider.train import engines
from outrider.train.fit import best_checkpoint, expected_length
from outrider.train.head import build_head
from outrider.train.manifest import write_json
from outrider.train.processes import require_success, run_all
from outrider.train.served import measure

if TYPE_CHECKING:
    from pathlib import Path

    from outrider.train.session import Session

REPORT = "report.json"
_MAX_TOKENS = 128


def check(session: Session, out: Path) -> dict[str, Any]:
    """Build a candidate, evaluate it offline, serve it, and write both figures side by side."""
    checkpoint = best_checkpoint(session.stage_dir("fit"))
    assert checkpoint is not None, "fit finished, so it left one"
    built = build_head(
        checkpoint,
        out / "head",
        target_name=session.stack.target.model,
        target_config=session.target_config(),
        aux_layers=session.recipe.aux_layers,
        k=session.recipe.k,
    )
    offline = _offline(session, out, checkpoint)
    served = _served(session, out)
    report = {
        "checkpoint": checkpoint.name,
        "head": built,
        "offline": {**offline, "expected_length": expected_length(offline["conditional"])},
        "served": served,
        "k": session.recipe.k,
        "max_tokens": _MAX_TOKENS,
    }
    write_json(out / REPORT, report)
    return {
        "length_by_category": {name: round(a["length"], 3) for name, a in served.items()},
        "offline_conditional": [round(c, 3) for c in offline["conditional"]],
        "served_conditional": [round(c, 3) for c in served["all"]["conditional"]],
        "coverage": round(offline["coverage"], 4),
    }


def _offline(session: Session, out: Path, checkpoint: Path) -> dict[str, Any]:
    result = out / "offline.json"
    job = session.job(
        out / "offline.log",
        "evaluate",
        "--checkpoint", checkpoint,
        "--data", session.stage_dir("prepare") / "check",
        "--hidden-states", session.stage_dir("extract") / "check",
        "--target", session.target_name,
        "--k", session.recipe.k,
        "--answer-tokens", _MAX_TOKENS,
        "--out", result,
    )  # fmt: skip
    require_success("check", [job], run_all([job], session.job_env()))
    loaded: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
    return loaded


def _served(session: Session, out: Path) -> dict[str, Any]:
    prompts = [
        json.loads(line)
        for line in (session.stage_dir("prompts") / "check.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    launch = engines.head_launch(
        session.stack, session.model_dir, session.port, session.engine_env, head=out / "head", k=session.recipe.k
    )
    with session.served("head", launch) as url:
        found = measure(
            url,
            session.stack.engine.name,
            session.target_name,
            prompts,
            max_tokens=_MAX_TOKENS,
            concurrency=min(8, session.recipe.concurrency),
        )
    return {name: asdict(a) for name, a in found.items()}
