"""Every command of the evidence scripts is one that the CLI knows: on a GPU a wrong option costs the whole run."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import typer

from outrider.cli import app

SCRIPTS = Path(__file__).resolve().parents[3] / "benchmarks" / "evidence"
PARTS = [
    *(("kimi_shape.sh", part, {}) for part in ("one", "long", "rank", "two", "full", "budget", "client")),
    *(("kimi_shape.sh", part, {}) for part in ("auto", "schedule", "overhead")),
    *(("kimi_shape.sh", part, {"RANKS": "8"}) for part in ("auto", "schedule", "overhead")),
    ("smollm2.sh", "all", {}),
    ("auto.sh", "all", {}),
]
# Writes down how it was called, and the file that was asked for.
RECORDER = """#!/bin/sh
printf '%s\\037' "$@" >>"$RECORD"; echo >>"$RECORD"
"""


@pytest.mark.parametrize(("script", "part", "env"), PARTS, ids=str)
def test_every_command_can_be_parsed(script: str, part: str, env: dict[str, str], tmp_path: Path) -> None:
    for name in ("outrider", "python"):
        (tmp_path / name).write_text(RECORDER, encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    record = tmp_path / "record"
    done = subprocess.run(
        [str(SCRIPTS / script), part],
        env={
            "PATH": os.environ["PATH"], "OUTRIDER": str(tmp_path / "outrider"), "RECORD": str(record),
            "OUTRIDER_RESULTS": str(tmp_path / "results"), "SHAPES": str(tmp_path / "shapes"), **env,
        },
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    calls = [line.split("\037")[:-1] for line in record.read_text(encoding="utf-8").splitlines()]
    assert calls
    for words in calls:
        if words[0].endswith(".py"):
            assert Path(words[0]).is_file()
        else:
            parse(words)


def parse(words: list[str]) -> None:
    """As the CLI would, without running it."""
    command, context = typer.main.get_command(app), None
    while isinstance(command, typer.core.TyperGroup):
        context = context or command.make_context("outrider", [], resilient_parsing=True)
        _, command, words = command.resolve_command(context, words)
        assert command is not None
        context = command.make_context(command.name, list(words), parent=context)


def test_an_option_that_the_cli_does_not_know_would_be_found() -> None:
    with pytest.raises(Exception, match="--repeat-often"):
        parse(["campaign", "smollm2-cpu", "--repeat-often", "2"])
