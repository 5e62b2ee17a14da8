"""Files of regenerated answers: repaired after a kill, counted, checked for repeats and refusals."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from outrider.train.errors import TrainError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

# Above this share of failed conversations the target or its template is at fault, not the prompt.
_MOST_FAILURES = 0.2


@dataclass(frozen=True, slots=True)
class ResponseCounts:
    """What a set of response files holds.

    Attributes:
        conversations: distinct prompts that were answered.
        rows: training rows; a conversation of several turns gives several.
        prompt_tokens: tokens that carry no loss.
        answer_tokens: tokens that the target wrote.
        failed: conversations that gave nothing: empty answers, refused requests.
        by_category: answered conversations by the prompts' category.
    """

    conversations: int
    rows: int
    prompt_tokens: int
    answer_tokens: int
    failed: int
    by_category: dict[str, int]


def drop_torn_line(path: Path) -> bool:
    """Cut a last line that a killed writer left unfinished; True if there was one.

    speculators appends on resume, so an unfinished line would swallow the next whole one.
    """
    if not path.exists():
        return False
    with path.open("rb+") as file:
        data = file.read()
        end = data.rfind(b"\n") + 1
        if end == len(data):
            return False
        file.truncate(end)
    return True


def failed_ids(path: Path) -> set[str]:
    """Ids in speculators' error file beside a response file."""
    errors = path.with_name(f"{path.stem}.errors{path.suffix}")
    if not errors.exists():
        return set()
    drop_torn_line(errors)
    return {json.loads(line)["id"] for line in errors.read_text(encoding="utf-8").splitlines() if line}


def count_responses(files: Iterable[Path], categories: dict[str, str]) -> ResponseCounts:
    """Count rows and tokens.

    Args:
        files: response files of one split.
        categories: prompt id to category.

    Raises:
        TrainError: a row occurs twice, nothing was answered, or too many conversations failed.
    """
    rows: set[str] = set()
    answered: set[str] = set()
    failed: set[str] = set()
    prompt_tokens = answer_tokens = 0
    for path in files:
        failed |= failed_ids(path)
        with path.open(encoding="utf-8") as file:
            for line in file:
                row = json.loads(line)
                if row["id"] in rows:
                    raise TrainError(
                        "a training row occurs twice",
                        evidence=f"{path}: {row['id']}",
                        next_step="remove the stage's directory and run the same command again",
                    )
                rows.add(row["id"])
                answered.add(row["primary_id"])
                written = sum(row["loss_mask"])
                answer_tokens += written
                prompt_tokens += len(row["loss_mask"]) - written
    failed -= answered
    total = len(answered) + len(failed)
    if not answered or len(failed) > _MOST_FAILURES * total:
        raise TrainError(
            f"{len(failed)} of {total} conversations came back empty or were refused",
            evidence=f"error files beside {', '.join(map(str, files))}",
            next_step="ask the served target one of these prompts by hand; check its chat template and context",
        )
    by_category = Counter(categories.get(prompt, "?") for prompt in answered)
    return ResponseCounts(
        len(answered), len(rows), prompt_tokens, answer_tokens, len(failed), dict(sorted(by_category.items()))
    )
