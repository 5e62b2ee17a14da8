"""Faults of files: configs, index, shards; and that a large checkpoint is looked at in seconds."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.preflight import checkpoints as made
from tests.unit.preflight.checkpoints import codes, drafted

from outrider.preflight import run_preflight
from outrider.preflight.facts.drafter import view_drafter
from outrider.preflight.facts.shape import ShapeError, shape_of
from outrider.preflight.reading import LocalFiles, read_checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def report_codes(target: Path) -> set[str]:
    return codes(run_preflight(made.stack(), "baseline", model_dir=target).findings)


def truncate(path: Path, by: int) -> None:
    path.write_bytes(path.read_bytes()[:-by])


def swap_shards(path: Path) -> None:
    data = json.loads(path.read_text())
    names = sorted(set(data["weight_map"].values()))
    turned = dict(zip(names, [*names[1:], names[0]], strict=True))
    data["weight_map"] = {tensor: turned[shard] for tensor, shard in data["weight_map"].items()}
    path.write_text(json.dumps(data))


SHARD = "model-00002-of-00003.safetensors"
INDEX = "model.safetensors.index.json"


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (lambda d: (d / "config.json").unlink(), {"FILE001"}),
        (lambda d: (d / "config.json").write_text("{"), {"FILE002"}),
        (lambda d: (d / "config.json").write_text("[1]"), {"FILE002"}),
        (lambda d: (d / "generation_config.json").write_text("version https://git-lfs"), {"FILE002"}),
        (lambda d: (d / INDEX).write_text('{"weight_map": {"a": 3}}'), {"FILE002"}),
        (lambda d: (d / SHARD).unlink(), {"FILE003"}),
        (lambda d: truncate(d / SHARD, 100), {"FILE004"}),
        (lambda d: (d / SHARD).write_bytes((d / SHARD).read_bytes() + b"x"), {"FILE004"}),
        (lambda d: (d / SHARD).write_bytes(b"\xff" * 64), {"FILE005"}),
        (lambda d: swap_shards(d / INDEX), {"FILE006"}),
        (lambda d: (d / "tokenizer.json").unlink(), {"TARGET008"}),
        (lambda d: (d / "tokenizer.json").write_text("{}"), {"TARGET008"}),
        (lambda d: (d / "tokenizer.json").write_text('{"model": {"vocab": {}}}'), {"TARGET008"}),
        (lambda d: (d / "chat_template.jinja").unlink(), {"TARGET010"}),
    ],
)
def test_spoilt_file_gives_its_finding(tmp_path: Path, spoil: Callable[[Path], object], expected: set[str]) -> None:
    target = made.llama_target().write(tmp_path / "target", shards=3)
    spoil(target)
    assert report_codes(target) == expected


def test_intact_checkpoint_gives_no_finding(tmp_path: Path) -> None:
    assert report_codes(made.llama_target().write(tmp_path / "target", shards=3)) == set()


def test_weights_of_another_format_are_an_advisory(tmp_path: Path) -> None:
    target = made.llama_target().write(tmp_path / "target")
    (target / "model.safetensors").rename(target / "pytorch_model.bin")
    report = run_preflight(made.stack(), "baseline", model_dir=target)
    assert codes(report.findings) == {"FILE007"}
    assert "pytorch_model.bin" in next(f.evidence for f in report.findings if f.code == "FILE007")


def test_absent_directory_is_a_finding(tmp_path: Path) -> None:
    assert report_codes(tmp_path / "nowhere") == {"FILE001"}


def test_drafters_files_are_checked_too(tmp_path: Path) -> None:
    drafter = made.llama_eagle3().write(tmp_path / "drafter")
    truncate(drafter / "model.safetensors", 8)
    report = run_preflight(
        made.stack(drafted("eagle3")),
        "drafted",
        model_dir=made.llama_target().write(tmp_path / "target"),
        drafter_dir=drafter,
    )
    finding = next(one for one in report.findings if one.code == "FILE004")
    assert finding.where.startswith(str(drafter))
    assert finding.variant == "drafted"


def sparse_shard(path: Path, first_layer: int, layers: int, experts: int) -> None:
    """A shard whose tensors are holes: its header is real, its data takes no room."""
    header: dict[str, Any] = {}
    offset = 0
    for layer in range(first_layer, first_layer + layers):
        for expert in range(experts):
            for part in ("gate_proj", "up_proj", "down_proj"):
                for kind, dtype, shape, nbytes in (
                    ("weight_packed", "I32", [2048, 896], 2048 * 896 * 4),
                    ("weight_scale", "BF16", [2048, 224], 2048 * 224 * 2),
                    ("weight_shape", "I32", [2], 8),
                ):
                    name = f"model.layers.{layer}.mlp.experts.{expert}.{part}.{kind}"
                    header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + nbytes]}
                    offset += nbytes
    raw = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(raw).to_bytes(8, "little") + raw)
        file.truncate(8 + len(raw) + offset)


def test_64_shards_take_little_more_than_reading_their_headers(tmp_path: Path) -> None:
    target = made.mla_target().write(tmp_path / "target")
    (target / "model.safetensors").unlink()
    weight_map: dict[str, str] = {}
    for index in range(64):
        name = f"model-{index + 1:05}-of-00064.safetensors"
        sparse_shard(target / name, index, 1, 360)
        header = read_checkpoint(_Only(target, name)).tensors
        weight_map |= dict.fromkeys(header or {}, name)
    (target / INDEX).write_text(json.dumps({"weight_map": weight_map}))
    assert len(weight_map) > 200_000
    stack = made.stack(drafted("ngram"), length=1024)
    # Processor time, held against what the headers' JSON alone takes here: machines differ, and so do their hours.
    began = time.process_time()
    for shard in sorted(target.glob("*.safetensors")):
        with shard.open("rb") as file:
            json.loads(file.read(int.from_bytes(file.read(8), "little")))
    parsing = time.process_time() - began
    began = time.process_time()
    report = run_preflight(stack, model_dir=target)
    elapsed = time.process_time() - began
    assert report.variants == ("baseline", "drafted")
    assert report.memory[0].weights > 500e9
    # The experts alone are there, and far too large for one GPU.
    assert codes(report.findings) == {"MEM001", "MEM007", "TARGET006"}
    print(f"{elapsed / parsing:.1f} times the parsing of headers ({parsing:.2f} s)")
    assert elapsed < 12 * parsing


class _Only(LocalFiles):
    """One shard of a directory, for building an index."""

    def __init__(self, directory: Path, name: str) -> None:
        super().__init__(directory)
        self._name = name

    def names(self) -> frozenset[str]:
        return frozenset({self._name})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.sampled_from(
    [
        *made.llama_target().config,
        *made.MLA,
        *made.dflash().config,
        *made.speculators_eagle3().config,
        "text_config",
        "rope_scaling",
        "rope_parameters",
        "quantization_config",
        "n_routed_experts",
        "num_nextn_predict_layers",
        "eagle_config",
        "num_aux_hidden_states",
        "model",
    ]
)


@given(st.dictionaries(FIELDS, JSON, max_size=6))
def test_any_config_values_are_a_shape_or_an_error(changes: dict[str, Any]) -> None:
    config = made.llama_target().config | changes
    try:
        shape = shape_of(config)
    except ShapeError:
        return
    assert shape.hidden > 0
    assert shape.layers > 0


@given(
    st.sampled_from([made.llama_eagle3, made.speculators_eagle3, made.mla_eagle3, made.dflash]),
    st.sampled_from(["eagle", "eagle3", "dflash", "dspark", "draft_model"]),
    st.dictionaries(FIELDS, JSON, max_size=6),
)
def test_any_drafter_config_is_viewed(make: Callable[[], made.Draft], method: str, changes: dict[str, Any]) -> None:
    view = view_drafter(make().config | changes, method)
    assert view.shape is not None or view.problem is not None
    assert view.fused_inputs != 0
    for runner in ("v1", "v2"):
        assert all(isinstance(layer, int) for layer in view.aux_layers(runner))  # type: ignore[arg-type]
