from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.train.errors import TrainError
from outrider.train.head import build_head
from outrider.train.tensors import copy_tensors, read_header

if TYPE_CHECKING:
    from pathlib import Path

_WIDTH = {"BF16": 2, "F32": 4, "I64": 8, "BOOL": 1}


def _write(path: Path, tensors: dict[str, tuple[str, list[int], bytes]]) -> None:
    header: dict[str, Any] = {}
    at = 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(t[2] for t in tensors.values()))


def _tensor(dtype: str, *shape: int, fill: int) -> tuple[str, list[int], bytes]:
    count = 1
    for length in shape:
        count *= length
    return dtype, list(shape), bytes([fill]) * (count * _WIDTH[dtype])


def _checkpoint(path: Path, *, aux: list[int] | None = None, dtype: str = "BF16") -> Path:
    path.mkdir()
    _write(
        path / "model.safetensors",
        {
            "embed_tokens.weight": _tensor(dtype, 32, 4, fill=1),
            "fc.weight": _tensor(dtype, 4, 12, fill=2),
            "lm_head.weight": _tensor(dtype, 8, 4, fill=3),
            "d2t": _tensor("I64", 8, fill=4),
            "t2d": _tensor("BOOL", 32, fill=1),
        },
    )
    config = {
        "speculators_model_type": "eagle3",
        "eagle_aux_hidden_state_layer_ids": [2, 3, 4] if aux is None else aux,
        "draft_vocab_size": 8,
        "transformer_layer_config": {"model_type": "llama", "max_position_embeddings": 4096},
        "speculators_config": {
            "verifier": {"name_or_path": "/somewhere/on/the/training/machine"},
            "proposal_methods": [{"speculative_tokens": 7}],
        },
    }
    (path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return path


def _build(checkpoint: Path, out: Path, aux: tuple[int, ...] = (2, 3, 4)) -> dict[str, Any]:
    return build_head(
        checkpoint,
        out,
        target_name="org/target",
        target_config={"max_position_embeddings": 8192},
        aux_layers=aux,
        k=3,
    )


def test_the_targets_embedding_is_left_out_and_the_rest_is_byte_identical(tmp_path: Path) -> None:
    built = _build(_checkpoint(tmp_path / "c"), tmp_path / "head")
    header = read_header(tmp_path / "head" / "model.safetensors")
    assert sorted(header) == ["d2t", "fc.weight", "lm_head.weight", "t2d"]
    data = (tmp_path / "head" / "model.safetensors").read_bytes()
    body = data[8 + struct.unpack("<Q", data[:8])[0] :]
    first, last = header["fc.weight"]["data_offsets"]
    assert body[first:last] == bytes([2]) * 96
    assert built["parameters"] == 4 * 12 + 8 * 4


def test_the_configuration_carries_the_targets_limit_and_no_path_of_this_machine(tmp_path: Path) -> None:
    _build(_checkpoint(tmp_path / "c"), tmp_path / "head")
    text = (tmp_path / "head" / "config.json").read_text(encoding="utf-8")
    config = json.loads(text)
    assert config["transformer_layer_config"]["max_position_embeddings"] == 8192
    assert config["eagle_aux_hidden_state_layer_ids"] == [2, 3, 4]
    assert config["speculators_config"]["proposal_methods"][0]["speculative_tokens"] == 3
    assert "/somewhere" not in text


@pytest.mark.parametrize("aux", [[], [1, 2, 3]])
def test_a_checkpoint_of_other_auxiliary_layers_is_refused(tmp_path: Path, aux: list[int]) -> None:
    with pytest.raises(TrainError, match="auxiliary layers"):
        _build(_checkpoint(tmp_path / "c", aux=aux), tmp_path / "head")


def test_wide_tensors_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TrainError, match="F32"):
        _build(_checkpoint(tmp_path / "c", dtype="F32"), tmp_path / "head")


@given(cut=st.integers(1, 400))
def test_a_file_cut_short_is_named_as_such(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    source = _checkpoint(tmp_path_factory.mktemp("cut") / "c") / "model.safetensors"
    source.write_bytes(source.read_bytes()[:-cut])
    with pytest.raises(TrainError, match=r"cut short|not a safetensors"):
        copy_tensors(source, source.with_suffix(".out"), lambda _name: True)


@given(junk=st.binary(max_size=64))
def test_junk_is_no_safetensors_file(tmp_path_factory: pytest.TempPathFactory, junk: bytes) -> None:
    file = tmp_path_factory.mktemp("junk") / "model.safetensors"
    file.write_bytes(b"\xff" + junk)
    with pytest.raises(TrainError):
        read_header(file)
