from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from outrider.train.errors import TrainError
from outrider.train.manifest import (
    MANIFEST,
    STARTED,
    Manifest,
    begin,
    finish,
    key_of,
    note_spent,
    read_manifest,
)

if TYPE_CHECKING:
    from pathlib import Path

DONE = Manifest("fit", "k1", {"epochs": 2}, {"extract": "k0"}, {"torch": "2.13.0"}, {"rows": 5}, 1.5)


def test_the_key_depends_on_settings_and_inputs() -> None:
    base = key_of("fit", {"lr": 0.1}, {"extract": "a"})
    assert base == key_of("fit", {"lr": 0.1}, {"extract": "a"})
    assert base != key_of("fit", {"lr": 0.2}, {"extract": "a"})
    assert base != key_of("fit", {"lr": 0.1}, {"extract": "b"})
    assert base != key_of("check", {"lr": 0.1}, {"extract": "a"})


def test_a_manifest_comes_back_as_written(tmp_path: Path) -> None:
    begin(tmp_path / "fit", "k1")
    finish(tmp_path / "fit", DONE)
    assert read_manifest(tmp_path / "fit") == DONE
    assert not (tmp_path / "fit" / STARTED).exists()


def test_work_on_the_same_key_is_kept_with_its_time(tmp_path: Path) -> None:
    begin(tmp_path, "k1")
    (tmp_path / "half").write_text("done so far", encoding="utf-8")
    note_spent(tmp_path, "k1", 12.0)
    assert begin(tmp_path, "k1") == 12.0
    assert (tmp_path / "half").exists()


def test_work_on_another_key_is_removed(tmp_path: Path) -> None:
    begin(tmp_path, "k1")
    (tmp_path / "half").write_text("of other settings", encoding="utf-8")
    assert begin(tmp_path, "k2") == 0.0
    assert not (tmp_path / "half").exists()


def test_content_without_any_mark_is_removed(tmp_path: Path) -> None:
    directory = tmp_path / "extract"
    directory.mkdir()
    (directory / "hs_0.safetensors").write_bytes(b"?")
    begin(directory, "k1")
    assert [p.name for p in directory.iterdir()] == [STARTED]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"stage": "fit"}'])
def test_a_damaged_manifest_is_an_error_not_a_finished_stage(tmp_path: Path, text: str) -> None:
    (tmp_path / MANIFEST).write_text(text, encoding="utf-8")
    with pytest.raises(TrainError, match="manifest cannot be read"):
        read_manifest(tmp_path)
