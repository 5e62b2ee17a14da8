from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import typer
from tests.unit.train.made import STACK
from typer.testing import CliRunner

from outrider.train.commands import train_plan, train_run
from outrider.train.errors import TrainError

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = {
    "hidden_size": 576, "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3, "head_dim": 64,
    "intermediate_size": 1536, "vocab_size": 49152,
}  # fmt: skip


def _app() -> typer.Typer:
    app = typer.Typer()
    app.command("plan")(train_plan)
    app.command("run")(train_run)
    return app


@pytest.fixture
def stack(tmp_path: Path) -> Path:
    file = tmp_path / "tiny-cpu.yaml"
    file.write_text(STACK, encoding="utf-8")
    (tmp_path / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    return file


def _plan(stack: Path, *options: str) -> dict[str, object]:
    words = ["plan", str(stack), "--config", str(stack.parent / "config.json"), "--json", "-", *options]
    outcome = CliRunner().invoke(_app(), words)
    assert outcome.exception is None, outcome.output
    loaded: dict[str, object] = json.loads(outcome.stdout)
    return loaded


def test_plan_prints_only_json_when_asked_for_json(stack: Path) -> None:
    plan = _plan(stack, "--node", "h200x1", "--samples", "3000", "--seq-len", "300")
    assert (plan["node"], plan["samples"], plan["seq_len"]) == ("h200x1", 3000, 300)
    assert str(plan["verdict"]).startswith("fits here (1x H200)")


def test_plan_takes_the_recipes_counts_where_none_are_given(stack: Path) -> None:
    plan = _plan(stack)
    assert (plan["samples"], plan["seq_len"], plan["node"]) == (12, 64, "this")


def test_plan_writes_a_document(stack: Path) -> None:
    document = stack.parent / "plan.md"
    _plan(stack, "--markdown", str(document))
    assert "## Go or no-go" in document.read_text(encoding="utf-8")


def test_plan_shows_the_formula_with_numbers(stack: Path) -> None:
    words = ["plan", str(stack), "--config", str(stack.parent / "config.json"), "--node", "h200x8", "--samples", "3000"]
    outcome = CliRunner().invoke(_app(), words, env={"COLUMNS": "220"})
    assert "3000 x 0.018 s" in outcome.output
    assert "fits here (8x H200)" in outcome.output


def test_a_target_that_nobody_knows_needs_its_config(stack: Path) -> None:
    outcome = CliRunner().invoke(_app(), ["plan", str(stack)])
    assert isinstance(outcome.exception, TrainError)
    assert "--config" in outcome.exception.next_step


def test_run_needs_the_targets_files(stack: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OUTRIDER_MODELS", raising=False)
    outcome = CliRunner().invoke(_app(), ["run", str(stack), "--directory", str(stack.parent / "run")])
    assert isinstance(outcome.exception, TrainError)
    assert "--model-dir" in outcome.exception.next_step


@pytest.mark.parametrize(
    "options", [["--until", "sleep"], ["--from", "fitt"], ["--budget", "fit"], ["--url", "http://x"]]
)
def test_wrong_usage_exits_2_before_anything_starts(stack: Path, options: list[str]) -> None:
    words = ["run", str(stack), "--model-dir", str(stack.parent), "--directory", str(stack.parent / "run"), *options]
    assert CliRunner().invoke(_app(), words).exit_code == 2
    assert not (stack.parent / "run" / "prompts").exists()
