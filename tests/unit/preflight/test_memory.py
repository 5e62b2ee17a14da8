"""The memory model against figures that were published or logged."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.preflight import checkpoints as made
from tests.unit.preflight.checkpoints import codes, drafted

from outrider.preflight import MemoryFigures, run_preflight
from outrider.preflight.facts.shape import Experts, Mla, Shape, shape_of
from outrider.preflight.memory import Split, kv_bytes_per_token, kv_tokens, tensors_from_shape, weight_bytes
from outrider.preflight.memory.kv import cache_dtype_bytes
from outrider.preflight.memory.overhead import default_batched_tokens
from outrider.preflight.shapes import reference
from outrider.stack import Stack, find_stack

if TYPE_CHECKING:
    from pathlib import Path

FLAGSHIP = "kimi-k2.5-rtx6000x8"
LLAMA_70B = Shape("LlamaForCausalLM", "llama", 8192, 80, 64, 8, 128, 128256, 28672, 131072)


def flagship(**memory: Any) -> tuple[Stack, MemoryFigures]:
    stack = find_stack(FLAGSHIP)
    stack = stack.model_copy(update={"memory": stack.memory.model_copy(update=memory)})
    return stack, run_preflight(stack, "baseline").memory[0]


def flagship_shape() -> Shape:
    known = reference("moonshotai/Kimi-K2.5")
    assert known is not None
    assert known.config is not None
    return shape_of(known.config)


def test_flagship_weights_are_the_published_595_gb() -> None:
    total = sum(nbytes for _, nbytes in tensors_from_shape(flagship_shape()))
    assert total == pytest.approx(595e9, rel=0.01)


def test_one_expert_of_the_flagship_is_22_mb_and_its_scales_2_75_mb() -> None:
    sizes = dict(tensors_from_shape(flagship_shape()))
    parts = [f"model.layers.5.mlp.experts.0.{name}_proj.weight" for name in ("gate", "up", "down")]
    assert sum(sizes[f"{part}_packed"] for part in parts) / 384 == pytest.approx(22.0e6, rel=0.01)
    assert sum(sizes[f"{part}_scale"] for part in parts) / 384 == pytest.approx(2.75e6, rel=0.01)


@pytest.mark.parametrize(("dtype", "expected"), [("auto", 70_272), ("fp8", 35_136)])
def test_flagship_kv_bytes_per_token(dtype: str, expected: int) -> None:
    assert flagship(kv_cache_dtype=dtype)[1].kv_bytes_per_token == expected


@pytest.mark.parametrize(("dtype", "published"), [("auto", 190_000), ("fp8", 450_000)])
def test_flagship_kv_room_is_within_20_percent_of_the_published(dtype: str, published: int) -> None:
    assert flagship(kv_cache_dtype=dtype)[1].kv_tokens == pytest.approx(published, rel=0.20)


def test_flagship_at_085_does_not_start_and_says_which_knob_to_turn_how_far() -> None:
    stack, _ = flagship(gpu_utilization=0.85)
    report = run_preflight(stack, "baseline")
    assert codes(report.findings) == {"MEM002"}
    fix = next(one.fix for one in report.findings if one.code == "MEM002")
    tokens = report.memory[0].kv_tokens
    assert f"lower `target.max_model_len` to {tokens}" in fix
    shorter = stack.model_copy(update={"target": stack.target.model_copy(update={"max_model_len": tokens})})
    assert codes(run_preflight(shorter, "baseline").findings) == set()
    raised = float(re.findall(r"gpu_utilization` to (0\.\d\d)", fix)[0])
    assert codes(run_preflight(flagship(gpu_utilization=raised)[0], "baseline").findings) == set()
    assert "MEM002" in codes(run_preflight(flagship(gpu_utilization=raised - 0.01)[0], "baseline").findings)


def test_cpu_cache_that_is_too_small_says_how_much_is_needed() -> None:
    stack = find_stack("smollm2-cpu")
    longer = stack.model_copy(update={"target": stack.target.model_copy(update={"max_model_len": 100_000})})
    finding = next(one for one in run_preflight(longer, "baseline").findings if one.code == "MEM002")
    assert "`memory.cpu_kv_gib` to 3" in finding.fix


def test_estimate_is_always_shown() -> None:
    assert "MEM004" in codes(run_preflight(find_stack(FLAGSHIP), "baseline").findings, notes=True)


def test_flagship_at_095_is_crowded() -> None:
    stack, _ = flagship(gpu_utilization=0.95)
    assert codes(run_preflight(stack, "baseline").findings) == {"MEM003"}


def test_cpu_engines_own_figure() -> None:
    # Its log: "CPU KV cache size: 46,592 tokens", with VLLM_CPU_KVCACHE_SPACE=1.
    figures = run_preflight(find_stack("smollm2-cpu"), "baseline").memory[0]
    assert figures.kv_tokens == pytest.approx(46_592, rel=0.05)
    assert figures.requests_at_full_length == 22


@pytest.mark.parametrize(
    ("tensor", "expected"),
    [(1, 80 * 2 * 8 * 128 * 2), (8, 80 * 2 * 1 * 128 * 2), (16, 80 * 2 * 1 * 128 * 2)],
)
def test_grouped_query_cache_is_split_until_a_head_is_left(tensor: int, expected: int) -> None:
    assert kv_bytes_per_token(LLAMA_70B, tensor=tensor) == expected


def test_latent_cache_is_the_same_on_every_rank() -> None:
    shape = flagship_shape()
    assert kv_bytes_per_token(shape, tensor=8) == kv_bytes_per_token(shape, tensor=1) == 61 * 576 * 2


def test_pipeline_stages_divide_layers() -> None:
    assert kv_bytes_per_token(LLAMA_70B, pipeline=4) * 4 == kv_bytes_per_token(LLAMA_70B)


@pytest.mark.parametrize(
    ("dtype", "model", "expected"),
    [("auto", "bfloat16", 2), ("auto", "float32", 4), ("auto", None, 2), ("fp8", "bfloat16", 1), ("fp8_e5m2", None, 1)],
)
def test_cache_dtype(dtype: str, model: str | None, expected: int) -> None:
    assert cache_dtype_bytes(dtype, model) == expected


@pytest.mark.parametrize(("gib", "tokens"), [(24, 2048), (95.6, 8192), (180, 16384)])
def test_default_step_size_follows_the_gpus_memory(gib: float, tokens: int) -> None:
    assert default_batched_tokens(gib) == tokens


def test_llama_70b_weights() -> None:
    total = weight_bytes(tensors_from_shape(LLAMA_70B), LLAMA_70B, Split())
    assert total == pytest.approx(141e9, rel=0.01)
    assert weight_bytes(tensors_from_shape(LLAMA_70B), LLAMA_70B, Split(tensor=8)) == pytest.approx(total / 8, rel=0.01)
    assert weight_bytes(tensors_from_shape(LLAMA_70B), LLAMA_70B, Split(pipeline=4)) < total / 3.5


def test_kv_projections_are_copied_beyond_the_number_of_heads() -> None:
    tensors = [("model.layers.0.self_attn.k_proj.weight", 8000)]
    assert weight_bytes(tensors, LLAMA_70B, Split(tensor=8)) == 1000
    assert weight_bytes(tensors, LLAMA_70B, Split(tensor=16)) == 1000


@pytest.mark.parametrize(
    ("name", "split", "expected"),
    [
        ("model.layers.0.mlp.experts.3.up_proj.weight_packed", Split(tensor=4), 250),
        ("model.layers.0.mlp.experts.3.up_proj.weight_packed", Split(tensor=2, data=4, expert=True), 125),
        ("model.layers.0.self_attn.q_a_proj.weight", Split(tensor=4), 1000),
        ("model.layers.0.self_attn.kv_a_proj_with_mqa.weight", Split(tensor=4), 1000),
        ("model.layers.0.self_attn.kv_b_proj.weight", Split(tensor=4), 500),
        ("model.layers.0.mlp.gate.weight", Split(tensor=4), 1000),
        ("model.layers.0.mlp.gate_proj.weight", Split(tensor=4), 250),
        ("model.layers.0.input_layernorm.weight", Split(tensor=4), 1000),
        ("model.norm.weight", Split(tensor=4), 1000),
        ("lm_head.weight", Split(tensor=4), 250),
        ("vision_tower.encoder.blocks.0.wqkv.weight", Split(tensor=4, text_only=True), 0),
        ("fc.weight", Split(tensor=4), 1000),
    ],
)
def test_how_a_tensor_is_dealt_out(name: str, split: Split, expected: int) -> None:
    assert weight_bytes([(name, 1000)], flagship_shape(), split) == expected


def test_headers_and_shape_agree(tmp_path: Path) -> None:
    for make in (made.llama_target, lambda: made.mla_target(nested=False)):
        target = make()
        shape = shape_of(target.config)
        from_files = [(name, tensor.nbytes) for name, tensor in target.tensors.items()]
        from_shape = list(tensors_from_shape(shape))
        for split in (Split(), Split(tensor=2)):
            assert weight_bytes(from_files, shape, split) == pytest.approx(
                weight_bytes(from_shape, shape, split), rel=0.01
            )


def test_too_large_a_model_does_not_fit(tmp_path: Path) -> None:
    stack, _ = flagship(gpu_utilization=0.5)
    assert codes(run_preflight(stack, "baseline").findings) == {"MEM001"}


def test_unknown_memory_of_the_gpu_is_a_note() -> None:
    stack = find_stack(FLAGSHIP)
    stack = stack.model_copy(update={"node": stack.node.model_copy(update={"vram_gib": None})})
    report = run_preflight(stack, "baseline")
    assert "MEM005" in codes(report.findings, notes=True)
    assert report.memory == ()


def test_target_without_a_config_is_a_note() -> None:
    report = run_preflight(made.stack(), "baseline")
    assert codes(report.findings) == set()
    assert {"MEM005", "FILE008"} <= codes(report.findings, notes=True)


def test_cpu_cache_that_is_not_set(tmp_path: Path) -> None:
    stack = made.stack(build="cpu", version="0.32.0")
    stack = stack.model_copy(update={"memory": stack.memory.model_copy(update={"cpu_kv_gib": None})})
    target = made.llama_target().write(tmp_path / "t")
    assert codes(run_preflight(stack, "baseline", model_dir=target).findings) == {"MEM006"}


def test_stated_weights_are_compared_with_the_files(tmp_path: Path) -> None:
    stack = made.stack()
    stack = stack.model_copy(update={"target": stack.target.model_copy(update={"weight_gb": 12.0})})
    target = made.llama_target().write(tmp_path / "t")
    assert codes(run_preflight(stack, "baseline", model_dir=target).findings) == {"MEM007"}


def test_drafter_takes_its_share(tmp_path: Path) -> None:
    stack = made.stack(drafted("eagle3"))
    report = run_preflight(
        stack,
        model_dir=made.llama_target().write(tmp_path / "t"),
        drafter_dir=made.llama_eagle3().write(tmp_path / "d"),
    )
    plain, with_drafter = report.memory
    assert plain.drafter == 0
    assert with_drafter.drafter == sum(tensor.nbytes for tensor in made.llama_eagle3().tensors.values())
    # One layer of two KV heads of eight values, keys and values, two bytes each.
    assert with_drafter.kv_bytes_per_token - plain.kv_bytes_per_token == 2 * 2 * 8 * 2


@given(nbytes=st.integers(-(10**6), 10**12), per_token=st.integers(0, 10**6), block=st.sampled_from([16, 64, 128]))
def test_tokens_fill_whole_pages_and_never_overflow(nbytes: int, per_token: int, block: int) -> None:
    tokens = kv_tokens(nbytes, per_token, block)
    assert tokens % block == 0
    assert tokens >= 0
    assert tokens * per_token <= max(nbytes, 0)


@given(
    tensor=st.sampled_from([1, 2, 4, 8]),
    experts=st.integers(1, 64),
    layers=st.integers(1, 12),
    latent=st.booleans(),
)
def test_splitting_never_loses_weights(tensor: int, experts: int, layers: int, latent: bool) -> None:
    shape = Shape(
        "X", "x", 64, layers, 8, 8, 8, 128, 256, None,
        mla=Mla(16, 8, 24, 8, 8) if latent else None,
        experts=Experts(experts, 1, 1, 32, 1),
    )  # fmt: skip
    whole = weight_bytes(tensors_from_shape(shape), shape, Split())
    part = weight_bytes(tensors_from_shape(shape), shape, Split(tensor=tensor))
    assert whole / tensor - 1 <= part <= whole
