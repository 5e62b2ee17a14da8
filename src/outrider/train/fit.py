"""Stage fit: train the head with speculators on the extracted hidden states."""

from __future__ import annotations

import contextlib
import json
import math
from typing import TYPE_CHECKING, Any

from outrider.train.errors import TrainError
from outrider.train.extract import extraction_engine
from outrider.train.manifest import write_json
from outrider.train.processes import Job, last_lines, require_success, run_all
from outrider.train.worker import EXIT_NOT_FINITE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from outrider.train.session import Session


def fit_arguments(session: Session, out: Path) -> list[str]:
    """Arguments of `speculators train`."""
    recipe = session.recipe
    words: list[object] = [
        "--verifier-name-or-path", session.target_name,
        "--speculator-type", "eagle3",
        "--data-path", session.stage_dir("prepare") / "train",
        "--hidden-states-path", session.stage_dir("extract") / "train",
        "--save-path", out / "checkpoints",
        "--log-dir", out / "logs",
        "--target-layer-ids", *recipe.aux_layers,
        "--total-seq-len", recipe.seq_len * recipe.pack,
        "--epochs", recipe.epochs,
        "--lr", recipe.lr,
        "--train-data-ratio", 1 - recipe.validation_share,
        "--ttt-steps", recipe.k,
        "--num-workers", recipe.workers,
        "--log-freq", 20,
        "--seed", recipe.seed,
        # The eager losses run on CPU and CUDA alike; the fused ones need Triton.
        "--loss-implementation", "eager",
    ]  # fmt: skip
    if session.train_device == "cpu":
        words += ["--draft-attn-impl", "sdpa"]  # flex attention has no CPU backward
    if recipe.draft_config is not None:
        geometry = out / "draft-config.json"
        write_json(geometry, dict(recipe.draft_config))
        words += ["--draft-config", geometry]
    else:
        words += ["--full-attention-indices", 0]
    if recipe.draft_vocab_size is not None:
        words += ["--draft-vocab-size", recipe.draft_vocab_size]
    if recipe.mask_token_id is not None:
        words += ["--mask-token-id", recipe.mask_token_id]
    if session.stack.target.trust_remote_code:
        words.append("--trust-remote-code")
    return [str(word) for word in words]


def fit(session: Session, out: Path) -> dict[str, Any]:
    """Train; resumes at the last whole epoch, stops at the budget or at a loss that is not finite.

    Raises:
        TrainError: training failed, or its loss became NaN (the checkpoints before are kept).
    """
    log = out / "fit.log"
    env = session.job_env() | {"OUTRIDER_FIT_METRICS": str(out / "metrics.jsonl")}
    if (budget := session.budgets.get("fit")) is not None:
        env["OUTRIDER_FIT_BUDGET_S"] = str(budget)
    with _hidden_states(session, out) as where:
        job = session.job(log, "speculators", "train", *fit_arguments(session, out), *where)
        job = _on_every_gpu(session, job)
        [code] = run_all([job], env, watch=lambda _s: session.say(_progress(out / "metrics.jsonl")))
    if code == EXIT_NOT_FINITE:
        best = best_checkpoint(out)
        raise TrainError(
            "training stopped: its loss is not finite",
            evidence=f"{log}:\n{last_lines(log, 4)}",
            next_step=f"lower the learning rate and start anew; the last good checkpoint is {best or 'none'}",
        )
    require_success("fit", [job], [code])
    best = best_checkpoint(out)
    if best is None:
        raise TrainError("training ended without a checkpoint", evidence=f"{log}:\n{last_lines(log)}")
    return {"checkpoint": best.name, **validation(best)}


@contextlib.contextmanager
def _hidden_states(session: Session, out: Path) -> Iterator[list[str]]:
    """Arguments that say where hidden states come from: the disk, or an engine that lives as long as the block."""
    if not session.recipe.online:
        yield ["--on-missing", "skip"]
        return
    with extraction_engine(session, out) as url:
        yield ["--on-missing", "generate", "--vllm-endpoint", f"{url}/v1"]


def _on_every_gpu(session: Session, job: Job) -> Job:
    gpus = session.stack.node.gpus if session.train_device == "cuda" else 1
    if gpus <= 1:
        return job
    return Job([job.argv[0], "-m", "torch.distributed.run", f"--nproc_per_node={gpus}", *job.argv[1:]], job.log)


def best_checkpoint(out: Path) -> Path | None:
    """The epoch of least validation loss, else the last epoch."""
    root = out / "checkpoints"
    link = root / "checkpoint_best"
    if link.is_dir():
        return link.resolve()
    epochs = [p for p in root.glob("*") if p.name.isdigit() and (p / "model.safetensors").is_file()]
    return max(epochs, key=lambda p: int(p.name), default=None)


def validation(checkpoint: Path) -> dict[str, Any]:
    """Loss and conditional accuracy by step on the held-back rows of the training families."""
    try:
        raw = json.loads((checkpoint / "val_metrics.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    steps = sorted(k for k in raw if k.startswith("cond_acc_"))
    return {"validation_loss": raw.get("loss_epoch"), "validation_conditional": [raw[s] for s in steps]}


def expected_length(conditional: list[float]) -> float:
    """Acceptance length from conditional acceptance by step: 1 + a1 + a1 a2 + ..."""
    return 1 + sum(math.prod(conditional[: i + 1]) for i in range(len(conditional)))


def _progress(metrics: Path) -> str:
    try:
        last = json.loads(metrics.read_text(encoding="utf-8").splitlines()[-1])
    except (OSError, IndexError, ValueError):
        return "fit: starting"
    kind = "train" if "train" in last else "val"
    figures = {k.removesuffix("_epoch"): v for k, v in last.get(kind, {}).items()}
    shown = ", ".join(
        f"{k} {figures[k]:.3f}" for k in ("loss", "cond_acc_0", "cond_acc_1", "cond_acc_2") if k in figures
    )
    speed = (last.get("profile") or {}).get("tokens_per_s")
    rate = f", {speed:.0f} tokens/s" if speed else ""
    return f"fit: epoch {last.get('epoch')}, step {last.get('global_step', '-')}, {kind} {shown}{rate}"
