"""Stages prompts, regenerate and prepare: from the corpus to tokenised rows with a loss mask."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from outrider.train import engines
from outrider.train.corpus import generate, write_jsonl
from outrider.train.errors import TrainError
from outrider.train.processes import last_lines, require_success, run_all
from outrider.train.responses import count_responses, drop_torn_line
from outrider.train.worker import EXIT_OTHER_TOKENIZER

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from outrider.train.session import Session

SPLITS = ("train", "check")
# Rows with fewer answer tokens teach nothing about continuing.
_FEWEST_ANSWER_TOKENS = 8


def make_prompts(session: Session, out: Path) -> dict[str, Any]:
    """Draw the prompts of both splits."""
    recipe = session.recipe
    counts: dict[str, Any] = {}
    for split, count in zip(SPLITS, (recipe.samples, recipe.check_samples), strict=True):
        prompts = generate(count, split=split, seed=recipe.seed)  # type: ignore[arg-type]
        write_jsonl(prompts, out / f"{split}.jsonl")
        counts[split] = len(prompts)
    return counts


def regenerate(session: Session, out: Path) -> dict[str, Any]:
    """Let the target answer every prompt; a budget ends it with the answers that are there.

    Raises:
        TrainError: another tokenizer is served; nothing or too little came back.
    """
    launch = engines.plain_launch(
        session.stack, session.model_dir, session.port, session.engine_env, servers=session.recipe.clients
    )
    with session.served("plain", launch) as url:
        _require_same_tokenizer(session, url, out)
        # Held-out prompts first: they are few, and a budget must not eat them.
        for split in reversed(SPLITS):
            _answer(session, url, out, split)
    return {split: _counts(session, out, split) for split in SPLITS}


def _require_same_tokenizer(session: Session, url: str, out: Path) -> None:
    log = out / "probe-tokenizer.log"
    job = session.job(log, "probe-tokenizer", "--endpoint", url, "--model", session.target_name)
    [code] = run_all([job], session.job_env())
    if code == EXIT_OTHER_TOKENIZER:
        raise TrainError(
            "the served target tokenises otherwise than the tokenizer in the model directory",
            evidence=f"{session.model_dir}: {last_lines(log, 1)}",
            next_step="serve the target with its own tokenizer; rows of another one would train a useless head",
        )
    require_success("regenerate", [job], [code])


def _answer(session: Session, url: str, out: Path, split: str) -> None:
    recipe = session.recipe
    prompts = (session.stage_dir("prompts") / f"{split}.jsonl").read_text(encoding="utf-8").splitlines()
    clients = recipe.clients if split == "train" else 1
    files = [out / f"{split}.{client}.jsonl" for client in range(clients)]
    # Held-out answers are greedy, because that is how heads are compared.
    temperatures = recipe.temperatures if split == "train" else {"0.0": 1.0}
    jobs = []
    for client, file in enumerate(files):
        drop_torn_line(file)
        shard = out / f"prompts.{split}.{client}.jsonl"
        shard.write_text("".join(f"{line}\n" for line in prompts[client::clients]), encoding="utf-8")
        jobs.append(
            session.job(
                out / f"{split}.{client}.log",
                "speculators", "regenerate-responses",
                "--endpoint", f"{url}/v1/chat/completions",
                "--model", session.target_name,
                "--dataset", shard,
                "--outfile", file,
                "--resume",
                "--concurrency", max(1, recipe.concurrency // clients),
                "--max-tokens", recipe.max_tokens,
                "--temperature", json.dumps(dict(temperatures)),
                "--seed", recipe.seed,
            )
        )  # fmt: skip

    def watch(elapsed_s: float) -> None:
        done = sum(_lines(file) for file in files)
        rate = done / elapsed_s
        session.say(f"regenerate {split}: {done} rows of {len(prompts)} prompts, {rate:.1f}/s")

    budget = session.budgets.get("regenerate") if split == "train" else None
    require_success("regenerate", jobs, run_all(jobs, session.job_env(), budget_s=budget, watch=watch))
    for file in files:
        drop_torn_line(file)


def _lines(path: Path) -> int:
    if not path.exists():
        return 0
    with path.open("rb") as file:
        return sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(1 << 20), b""))


def _response_files(directory: Path, split: str) -> list[Path]:
    return sorted(p for p in directory.glob(f"{split}.*.jsonl") if ".errors" not in p.name)


def _counts(session: Session, out: Path, split: str) -> dict[str, Any]:
    prompts = (session.stage_dir("prompts") / f"{split}.jsonl").read_text(encoding="utf-8").splitlines()
    categories = {row["id"]: row["category"] for row in map(json.loads, prompts)}
    counted = count_responses(_response_files(out, split), categories)
    return {
        "prompts": len(prompts),
        "conversations": counted.conversations,
        "rows": counted.rows,
        "prompt_tokens": counted.prompt_tokens,
        "answer_tokens": counted.answer_tokens,
        "failed": counted.failed,
        "by_category": counted.by_category,
    }


def prepare(session: Session, out: Path) -> dict[str, Any]:
    """Turn answers into speculators' dataset, and count tokens for the draft vocabulary.

    speculators takes any `.arrow` file for a finished dataset, so each split is made beside its place.

    Raises:
        TrainError: the draft vocabulary is larger than the target's.
    """
    recipe = session.recipe
    vocab = int(str(session.target_config()["vocab_size"]))
    if recipe.draft_vocab_size is not None and recipe.draft_vocab_size > vocab:
        raise TrainError(
            f"the draft vocabulary ({recipe.draft_vocab_size}) is larger than the target's ({vocab})",
            evidence=f"training.draft_vocab_size against vocab_size in {session.model_dir / 'config.json'}",
            next_step=f"set draft_vocab_size to at most {vocab}, or leave it out for the whole vocabulary",
        )
    counts: dict[str, Any] = {}
    for split in SPLITS:
        place, partial = out / split, out / f"{split}.partial"
        if not place.exists():
            shutil.rmtree(partial, ignore_errors=True)
            _prepare_split(session, out, split, partial)
            partial.rename(place)
        counts[split] = {"rows": sum(_arrow_rows(file) for file in place.glob("*.arrow"))}
    return counts


def _arrow_rows(path: Path) -> int:
    """Rows of an Arrow stream; dataset_info.json still counts what was filtered out."""
    with pa.memory_map(str(path)) as source, pa.ipc.open_stream(source) as stream:
        return sum(batch.num_rows for batch in stream)


def _prepare_split(session: Session, out: Path, split: str, partial: Path) -> None:
    files: Sequence[Path] = _response_files(session.stage_dir("regenerate"), split)
    data: list[object] = [word for file in files if _lines(file) for word in ("--data", file)]
    trust = ["--trust-remote-code"] if session.stack.target.trust_remote_code else []
    job = session.job(
        out / f"{split}.log",
        "speculators", "prepare-data",
        "--model", session.target_name,
        *data,
        "--output", partial,
        "--seq-length", session.recipe.seq_len,
        "--minimum-valid-tokens", _FEWEST_ANSWER_TOKENS,
        "--num-preprocessing-workers", session.recipe.workers,
        "--seed", session.recipe.seed,
        "--no-skip-token-freq",
        *trust,
    )  # fmt: skip
    require_success("prepare", [job], run_all([job], session.job_env()))
