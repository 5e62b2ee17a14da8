"""Stage extract: the target's hidden states at the auxiliary layers and the last one, a file a row."""

from __future__ import annotations

import contextlib
import json
import shutil
from typing import TYPE_CHECKING, Any

from outrider.train import engines
from outrider.train.answer import SPLITS
from outrider.train.errors import TrainError
from outrider.train.manifest import read_manifest
from outrider.train.processes import require_success, run_all

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from outrider.train.session import Session

# Files cost a header and the rest of their last block; a full disk kills the engine, not only us.
_SPARE = 1.08
_BYTES_PER_VALUE = 2  # BF16
# 98 % were seen on the CPU engine; the rest are near ties that another batch size decides otherwise. States of other
# rows give next to nothing (speculators 279: silently wrong for batches above 1).
_LEAST_AGREEMENT = 0.9


def hidden_state_bytes(tokens: int, layers: int, hidden_size: int) -> int:
    """Bytes of hidden states: tokens x layers x hidden size x 2 (BF16)."""
    return tokens * layers * hidden_size * _BYTES_PER_VALUE


def require_room(directory: Path, needed: int, *, already: int = 0) -> None:
    """Refuse to start what the disk cannot hold.

    Raises:
        TrainError: says how many GB are needed and free.
    """
    free = shutil.disk_usage(directory).free
    if needed * _SPARE - already > free:
        raise TrainError(
            f"extraction needs {needed * _SPARE / 1e9:.1f} GB, {free / 1e9:.1f} GB are free"
            + (f" beside {already / 1e9:.1f} GB that are there already" if already else ""),
            evidence=f"disk of {directory}",
            next_step="choose another --directory, fewer or shorter samples, or --online; `outrider train plan` counts",
        )


def extract(session: Session, out: Path) -> dict[str, Any]:
    """Send every prepared row through the target and keep its hidden states.

    Online training keeps those of the held-out rows only.

    Raises:
        TrainError: the disk is too small; nothing came out; or the states are not those of the rows.
    """
    session.require_layers()
    config, recipe = session.target_config(), session.recipe
    splits = ("check",) if recipe.online else SPLITS
    layers = (*recipe.aux_layers, session.target_layers())
    tokens = _tokens(session, splits)
    hidden = int(str(config["hidden_size"]))
    already = sum(f.stat().st_size for f in out.rglob("*.safetensors"))
    require_room(out, hidden_state_bytes(tokens, len(layers), hidden), already=already)
    with extraction_engine(session, out) as url:
        for split in splits:
            _extract_split(session, url, out, split)
    counts: dict[str, Any] = {"agreement": _require_agreement(session, out)}
    for split in splits:
        files = list((out / split).glob("hs_*.safetensors"))
        counts[split] = {"rows": len(files), "bytes": sum(f.stat().st_size for f in files)}
    return counts


def _require_agreement(session: Session, out: Path) -> float:
    """Share of the held-out, greedy answers that the stored states give again.

    Raises:
        TrainError: too little: rows were mixed up in a batch, or the last layer is not the last.
    """
    result = out / "agreement.json"
    job = session.job(
        out / "agreement.log",
        "evaluate",
        "--data", session.stage_dir("prepare") / "check",
        "--hidden-states", out / "check",
        "--target", session.target_name,
        "--out", result,
    )  # fmt: skip
    require_success("extract", [job], run_all([job], session.job_env()))
    share = float(json.loads(result.read_text(encoding="utf-8"))["agreement"])
    if share < _LEAST_AGREEMENT:
        raise TrainError(
            f"the extracted hidden states give only {share:.0%} of the target's own greedy tokens again",
            evidence=f"{out / 'check'} against {session.stage_dir('prepare') / 'check'}",
            next_step="extract with --concurrency 1; if that agrees, the engine mixes up rows of a batch",
        )
    return round(share, 4)


@contextlib.contextmanager
def extraction_engine(session: Session, place: Path) -> Iterator[str]:
    """The target, served so that each request leaves its hidden states below `place`; gives the base URL."""
    incoming = place / "incoming"
    shutil.rmtree(incoming, ignore_errors=True)
    incoming.mkdir(parents=True)
    launch = engines.extraction_launch(
        session.stack,
        session.model_dir,
        session.port,
        session.engine_env,
        layers=(*session.recipe.aux_layers, session.target_layers()),
        storage=incoming,
        text_only=session.recipe.text_only,
    )
    try:
        with session.served("extract", launch) as url:
            yield url
    finally:
        shutil.rmtree(incoming, ignore_errors=True)


def _tokens(session: Session, splits: tuple[str, ...]) -> int:
    """Tokens of all rows, whether or not they are cut to the sequence length: an upper bound."""
    manifest = read_manifest(session.stage_dir("regenerate"))
    if manifest is None:
        return session.recipe.samples * session.recipe.seq_len
    return sum(manifest.counts[s]["prompt_tokens"] + manifest.counts[s]["answer_tokens"] for s in splits)


def _extract_split(session: Session, url: str, out: Path, split: str) -> None:
    recipe = session.recipe
    target = out / split
    target.mkdir(exist_ok=True)
    clients = recipe.clients if split == "train" else 1
    jobs = [
        session.job(
            out / f"{split}.{rank}.log",
            "speculators", "generate-offline-data",
            "--endpoint", f"{url}/v1",
            "--preprocessed-data", session.stage_dir("prepare") / split,
            "--output", target,
            "--concurrency", max(1, recipe.concurrency // clients),
            "--world-size", clients,
            "--rank", rank,
        )
        for rank in range(clients)
    ]  # fmt: skip

    def watch(elapsed_s: float) -> None:
        done = sum(1 for _ in target.glob("hs_*.safetensors"))
        session.say(f"extract {split}: {done} rows, {done / elapsed_s:.1f}/s")

    budget = session.budgets.get("extract") if split == "train" else None
    require_success("extract", jobs, run_all(jobs, session.job_env(), budget_s=budget, watch=watch))
    if not any(target.glob("hs_*.safetensors")):
        raise TrainError(
            f"no hidden states came out for split {split}",
            evidence=str(out / f"{split}.0.log"),
            next_step="look into that log: each refused row is named there",
        )
