from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from outrider.train.errors import TrainError
from outrider.train.responses import count_responses, drop_torn_line

if TYPE_CHECKING:
    from pathlib import Path


def _row(prompt: str, turn: int = 0, *, asked: int = 4, written: int = 6) -> str:
    mask = [0] * asked + [1] * written
    return json.dumps({"id": f"{prompt}_gen{turn}", "primary_id": prompt, "loss_mask": mask}) + "\n"


def _errors(path: Path, *ids: str) -> None:
    path.with_name(f"{path.stem}.errors.jsonl").write_text(
        "".join(json.dumps({"id": i, "metadata": {"error": "empty assistant generation"}}) + "\n" for i in ids),
        encoding="utf-8",
    )


def test_a_line_torn_by_a_kill_is_cut_and_whole_lines_stay(tmp_path: Path) -> None:
    file = tmp_path / "train.0.jsonl"
    file.write_text(_row("a") + _row("b")[:25], encoding="utf-8")
    assert drop_torn_line(file)
    assert file.read_text(encoding="utf-8") == _row("a")


def test_whole_files_are_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "train.0.jsonl"
    file.write_text(_row("a"), encoding="utf-8")
    assert not drop_torn_line(file)
    assert not drop_torn_line(tmp_path / "absent.jsonl")
    assert file.read_text(encoding="utf-8") == _row("a")


def test_tokens_and_conversations_are_counted_over_files(tmp_path: Path) -> None:
    first, second = tmp_path / "train.0.jsonl", tmp_path / "train.1.jsonl"
    first.write_text(_row("a") + _row("a", 1, asked=12), encoding="utf-8")
    second.write_text(_row("b"), encoding="utf-8")
    counted = count_responses([first, second], {"a": "chat", "b": "code"})
    assert (counted.conversations, counted.rows) == (2, 3)
    assert (counted.prompt_tokens, counted.answer_tokens) == (20, 18)
    assert counted.by_category == {"chat": 1, "code": 1}


def test_a_row_that_occurs_twice_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "train.0.jsonl"
    file.write_text(_row("a") * 2, encoding="utf-8")
    with pytest.raises(TrainError, match="occurs twice"):
        count_responses([file], {"a": "chat"})


def test_a_few_empty_answers_are_counted_and_left_out(tmp_path: Path) -> None:
    file = tmp_path / "train.0.jsonl"
    file.write_text("".join(_row(str(i)) for i in range(9)), encoding="utf-8")
    _errors(file, "9")
    counted = count_responses([file], {})
    assert (counted.conversations, counted.failed) == (9, 1)


def test_a_prompt_that_failed_and_was_answered_on_resume_has_not_failed(tmp_path: Path) -> None:
    file = tmp_path / "train.0.jsonl"
    file.write_text(_row("a"), encoding="utf-8")
    _errors(file, "a")
    assert count_responses([file], {}).failed == 0


def test_mostly_empty_answers_stop_the_run(tmp_path: Path) -> None:
    file = tmp_path / "train.0.jsonl"
    file.write_text(_row("a"), encoding="utf-8")
    _errors(file, "b", "c")
    with pytest.raises(TrainError, match="2 of 3 conversations came back empty"):
        count_responses([file], {})


def test_no_answer_at_all_stops_the_run(tmp_path: Path) -> None:
    file = tmp_path / "train.0.jsonl"
    file.write_text("", encoding="utf-8")
    with pytest.raises(TrainError, match="0 of 0"):
        count_responses([file], {})
