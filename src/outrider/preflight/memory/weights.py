"""Bytes of weights on the fullest GPU: from headers where they are at hand, else from the shape.

How vLLM deals tensors out (0.33.0, `model_executor/layers/linear.py`, `vocab_parallel_embedding.py`,
`models/deepseek_v2.py`): column- and row-parallel layers and vocabularies are split over tensor-parallel
ranks, KV projections at most once per KV head, low-rank `*_a` projections, routers and norms are copied;
experts are split like other layers, or dealt out whole over tensor x data ranks with expert parallelism.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from outrider.preflight.facts.towers import VISION

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from outrider.preflight.facts.shape import Shape
    from outrider.preflight.reading import TensorInfo

# (name, bytes) of a tensor; experts of one layer may stand together under one name.
Sized = tuple[str, int]
_LAYER = re.compile(r"(?:^|\.)layers\.(\d+)\.")
_EXPERT = re.compile(r"\.experts\.")
_EXPERT_INDEX = re.compile(r"\.experts\.\d+\.")
_COPIED = re.compile(
    r"(norm|layernorm)[^.]*\.|(^|\.)fc\.|\.(q_a_proj|kv_a_proj_with_mqa|fused_qkv_a_proj)\.|\.mlp\.gate\.|"
    r"\.e_score_correction_bias|\.block_sparse_moe\.gate\.|\.shared_expert_gate\.|eh_proj\.|(^|\.)(d2t|t2d|mask_hidden)$"
)
_KV = re.compile(r"\.(k_proj|v_proj)\.")


@dataclass(frozen=True, slots=True)
class Split:
    """How a model is dealt out.

    Attributes:
        tensor: tensor-parallel size.
        pipeline: pipeline stages.
        data: data-parallel size; matters for experts only.
        expert: experts are dealt out whole.
        text_only: vision and audio towers are not loaded.
    """

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    expert: bool = False
    text_only: bool = False


def weight_bytes(tensors: Iterable[Sized], shape: Shape, split: Split) -> int:
    """Bytes of weights on the fullest GPU (the fullest pipeline stage)."""
    stages = [0.0] * split.pipeline
    for name, nbytes in tensors:
        if split.text_only and VISION.search(name):
            continue
        share = nbytes * _share(name, shape, split)
        if ".kv_b_proj.weight" in name:
            # MLA layers keep kv_b_proj a second time, cut into the two matrices that decoding absorbs.
            share *= 2
        hit = _LAYER.search(name)
        if hit is not None and not VISION.search(name):
            stages[min(int(hit.group(1)) * split.pipeline // shape.layers, split.pipeline - 1)] += share
        elif "embed" in name or VISION.search(name):
            stages[0] += share
        else:
            stages[-1] += share
    return round(max(stages))


def _share(name: str, shape: Shape, split: Split) -> float:
    if _EXPERT.search(name):
        return 1 / (split.tensor * split.data) if split.expert else 1 / split.tensor
    if _COPIED.search(name):
        return 1.0
    if _KV.search(name) and not VISION.search(name):
        return 1 / min(split.tensor, shape.kv_heads)
    return 1 / split.tensor


def grouped(tensors: Mapping[str, TensorInfo]) -> tuple[Sized, ...]:
    """Headers as (name, bytes) with the experts of a layer under one name: a hundredth of the entries."""
    sums: defaultdict[str, int] = defaultdict(int)
    for name, tensor in tensors.items():
        sums[_EXPERT_INDEX.sub(".experts.0.", name) if ".experts." in name else name] += tensor.nbytes
    return tuple(sums.items())


def drafter_bytes(tensors: Iterable[Sized], shape: Shape, tensor: int) -> int:
    """Bytes of a drafter on one GPU; a drafter has one pipeline stage."""
    return weight_bytes(tensors, shape, Split(tensor=tensor))


def tensors_from_shape(shape: Shape) -> Iterator[Sized]:
    """What a checkpoint of that shape holds, in the names that llama- and DeepSeek-type models use.

    Quantised parts (compressed-tensors, integer weights with group scales) are counted as packed weights and
    BF16 scales; everything that `ignore` names, and any other format, as two bytes a parameter.
    """
    hidden = shape.hidden
    yield "model.embed_tokens.weight", 2 * shape.vocabulary * hidden
    if not shape.tied:
        yield "lm_head.weight", 2 * shape.vocabulary * hidden
    yield "model.norm.weight", 2 * hidden
    for index in range(shape.layers):
        layer = f"model.layers.{index}"
        yield f"{layer}.input_layernorm.weight", 4 * hidden
        for name, rows, columns in _attention(shape):
            yield from _linear(shape, f"{layer}.self_attn.{name}", rows * columns)
        if shape.experts is None or index < shape.experts.dense_layers:
            for name in ("gate_proj", "up_proj", "down_proj"):
                yield from _linear(shape, f"{layer}.mlp.{name}", shape.intermediate * hidden)
            continue
        yield f"{layer}.mlp.gate.weight", 2 * shape.experts.count * hidden
        width = shape.experts.intermediate * hidden
        for name in ("gate_proj", "up_proj", "down_proj"):
            yield from _linear(shape, f"{layer}.mlp.experts.0.{name}", width, copies=shape.experts.count)
            if shape.experts.shared:
                yield from _linear(shape, f"{layer}.mlp.shared_experts.{name}", width, copies=shape.experts.shared)


def _attention(shape: Shape) -> Iterator[tuple[str, int, int]]:
    hidden, mla = shape.hidden, shape.mla
    if mla is None:
        yield "q_proj", shape.heads * shape.head_dim, hidden
        yield "k_proj", shape.kv_heads * shape.head_dim, hidden
        yield "v_proj", shape.kv_heads * shape.head_dim, hidden
        yield "o_proj", hidden, shape.heads * shape.head_dim
        return
    query = shape.heads * (mla.nope_dim + mla.rope_dim)
    if mla.q_lora_rank:
        yield "q_a_proj", mla.q_lora_rank, hidden
        yield "q_b_proj", query, mla.q_lora_rank
    else:
        yield "q_proj", query, hidden
    yield "kv_a_proj_with_mqa", mla.kv_lora_rank + mla.rope_dim, hidden
    yield "kv_b_proj", shape.heads * (mla.nope_dim + mla.value_dim), mla.kv_lora_rank
    yield "o_proj", hidden, shape.heads * mla.value_dim


def _linear(shape: Shape, name: str, parameters: int, copies: int = 1) -> Iterator[Sized]:
    packing = _packing(shape.quantization)
    if packing is None or _ignored(shape.quantization, name):
        yield f"{name}.weight", 2 * parameters * copies
        return
    bits, group = packing
    yield f"{name}.weight_packed", copies * math.ceil(parameters * bits / 8)
    if group:
        yield f"{name}.weight_scale", copies * 2 * math.ceil(parameters / group)


def _packing(quantization: Mapping[str, object]) -> tuple[int, int] | None:
    """Bits a weight and group size of a compressed-tensors config, None for other formats."""
    groups = quantization.get("config_groups")
    if quantization.get("quant_method") != "compressed-tensors" or not isinstance(groups, dict) or not groups:
        return None
    first = next(iter(groups.values()))
    weights = first.get("weights") if isinstance(first, dict) else None
    if not isinstance(weights, dict):
        return None
    bits, group = weights.get("num_bits"), weights.get("group_size")
    if not isinstance(bits, int) or not 1 <= bits <= 16:
        return None
    return bits, group if isinstance(group, int) and group > 0 else 0


def _ignored(quantization: Mapping[str, object], name: str) -> bool:
    patterns = quantization.get("ignore")
    for pattern in patterns if isinstance(patterns, list) else ():
        text = str(pattern)
        if text.startswith("re:"):
            try:
                if re.match(text[3:], name):
                    return True
            except re.error:
                continue
        elif name == text or name.endswith(f".{text}"):
            return True
    return False
