"""What a decode step must move and compute on one GPU: bytes, FLOPs and messages, from the stack alone."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from outrider.model_store.locate import expected
from outrider.predict.errors import PredictError
from outrider.preflight.facts.shape import Shape, ShapeError, shape_of
from outrider.preflight.memory import Split, kv_bytes_per_token, tensors_from_shape, weight_bytes
from outrider.preflight.memory.kv import cache_dtype_bytes
from outrider.preflight.shapes import reference

if TYPE_CHECKING:
    from collections.abc import Mapping

    from outrider.stack import Speculation, Stack

_EXPERT = re.compile(r"\.experts\.")


@dataclass(frozen=True, slots=True)
class Link:
    """One protocol of the interconnect: seconds of one ring step, and bytes/s."""

    hop_s: float
    bytes_s: float


@dataclass(frozen=True, slots=True)
class Machine:
    """One GPU's part of a decode step, and how fast the node is.

    Attributes:
        layers, moe_layers, hidden, vocabulary: of the target.
        experts, per_token: routed experts a layer, and how many one token uses; 0 without experts.
        expert_bytes: of one routed expert on one GPU.
        dense_bytes: all weights that every step reads on one GPU (no experts, no embedding table).
        dense_flops: a token, on one GPU, of these weights.
        routed_flops: a token, on one GPU, of the routed experts that it uses.
        kv_bytes: of one cached token in one layer on one GPU.
        query_bytes, output_bytes: of one token in one layer on one GPU; what context parallelism exchanges.
        ranks: GPUs that reduce together.
        context_ranks: decode context parallelism that the stack sets.
        rereads: verified tokens read the cache one by one.
        bandwidth: memory of one GPU, bytes/s.
        peak_flops: dense BF16 of one GPU, FLOP/s.
        links: protocols that NCCL may choose from.
        step_s, layer_s, draft_s: fixed cost of a step, a layer, a drafting pass; seconds.
        dummy: weights are dummies, so routing is uniform.
        source: where the hardware's figures come from.
    """

    layers: int
    moe_layers: int
    hidden: int
    vocabulary: int
    experts: int
    per_token: int
    expert_bytes: float
    dense_bytes: float
    dense_flops: float
    routed_flops: float
    kv_bytes: float
    query_bytes: float
    output_bytes: float
    ranks: int
    context_ranks: int
    rereads: bool
    bandwidth: float
    peak_flops: float
    links: tuple[Link, ...]
    step_s: float
    layer_s: float
    draft_s: float
    dummy: bool
    source: str


def machine_of(stack: Stack, config: Mapping[str, Any] | None = None) -> Machine:
    """The machine that a stack describes.

    Args:
        stack: target, node, parallel sizes and memory settings are read.
        config: the target's `config.json`; None looks for local files, then for the shape that ships.

    Raises:
        PredictError: neither the target's shape nor the accelerator is known.
    """
    shape, parallel = target_shape(stack, config), stack.parallel
    facts = accelerator(stack.node.accelerator)
    split = Split(tensor=parallel.tensor, data=parallel.data, expert=parallel.expert, text_only=True)
    tensors = list(tensors_from_shape(shape))
    read = [(n, b // 2 if ".kv_b_proj." in n else b) for n, b in tensors if not _EXPERT.search(n) and "embed" not in n]
    if shape.tied:
        read.append(("lm_head.weight", 2 * shape.vocabulary * shape.hidden))
    dense = weight_bytes(read, shape, split)
    experts = shape.experts
    moe_layers = max(shape.layers - experts.dense_layers, 0) if experts else 0
    held = weight_bytes([(n, b) for n, b in tensors if _EXPERT.search(n)], shape, split)
    served = stack.target.dtype
    value_bytes = cache_dtype_bytes(stack.memory.kv_cache_dtype, shape.dtype if served == "auto" else served)
    fixed = _table()["launch"][_launch_kind(stack)]
    heads = -(-shape.heads // parallel.tensor)
    return Machine(
        layers=shape.layers,
        moe_layers=moe_layers,
        hidden=shape.hidden,
        vocabulary=shape.vocabulary,
        experts=experts.count if experts else 0,
        per_token=experts.per_token if experts else 0,
        expert_bytes=held / (moe_layers * experts.count) if experts and moe_layers else 0.0,
        dense_bytes=float(dense),
        # Two bytes a weight, two operations a weight.
        dense_flops=float(dense),
        routed_flops=_routed_flops(shape, moe_layers) / parallel.tensor,
        kv_bytes=kv_bytes_per_token(shape, tensor=parallel.tensor, value_bytes=value_bytes) / shape.layers,
        query_bytes=2.0 * heads * ((shape.mla.kv_lora_rank + shape.mla.rope_dim) if shape.mla else shape.head_dim),
        output_bytes=2.0 * heads * (shape.mla.kv_lora_rank if shape.mla else shape.head_dim),
        ranks=parallel.tensor,
        context_ranks=int(stack.engine.flags.get("decode-context-parallel-size", 1)),
        rereads=bool(shape.mla is not None and facts["mla_rereads"]),
        bandwidth=float(facts["bandwidth_gb_s"]) * 1e9,
        peak_flops=float(facts["bf16_tflops"]) * 1e12,
        links=_links(stack),
        step_s=fixed["step_us"] / 1e6,
        layer_s=fixed["layer_us"] / 1e6,
        draft_s=fixed["draft_us"] / 1e6,
        dummy=stack.engine.flags.get("load-format") == "dummy",
        source=str(facts["source"]),
    )


def target_shape(stack: Stack, config: Mapping[str, Any] | None = None) -> Shape:
    """The target's dimensions: from a given config, its local files, or the shape that ships.

    Raises:
        PredictError: none of them is there or usable.
    """
    local = expected(stack, "baseline").model_dir or Path(stack.target.model)
    if config is None and (local / "config.json").is_file():
        config = json.loads((local / "config.json").read_text(encoding="utf-8"))
    if config is None:
        shipped = reference(stack.target.model)
        config = shipped.config if shipped else None
    if not isinstance(config, dict):
        raise PredictError(
            f"the shape of {stack.target.model} is not known",
            evidence="no config.json at hand and none ships with Outrider",
            next_step="give the target's config.json with --config",
        )
    try:
        return shape_of(config)
    except ShapeError as error:
        raise PredictError(f"the config of {stack.target.model} is not usable", evidence=str(error)) from error


def accelerator(name: str) -> dict[str, Any]:
    """Facts about an accelerator.

    Raises:
        PredictError: hardware.yaml has no entry for it.
    """
    words = set(name.lower().split())
    for facts in _table()["accelerators"]:
        if set(str(facts["match"]).lower().split()) <= words:
            return dict(facts)
    known = ", ".join(str(facts["match"]) for facts in _table()["accelerators"])
    raise PredictError(
        f"nothing is known about accelerator {name!r}",
        evidence=f"known: {known}",
        next_step="name one of these in `node.accelerator`, or add it to predict/hardware.yaml with its source",
    )


def draft_bytes(stack: Stack, spec: Speculation) -> float:
    """Weights that one drafting pass reads on one GPU; 0 for methods that look proposals up.

    The stated size less an input embedding that it repeats; one decoder layer and a vocabulary where none is stated.
    """
    if spec.drafter is None:
        return 0.0
    shape = target_shape(stack)
    table = 2.0 * shape.vocabulary * shape.hidden
    stated = spec.drafter.weight_gb * 1e9
    own = stated - table if stated > 2 * table else stated
    if not stated:
        own = 2.0 * (6 * shape.hidden**2 + 4 * shape.heads * shape.head_dim * shape.hidden) + table
    return own / stack.parallel.tensor


def _routed_flops(shape: Shape, moe_layers: int) -> float:
    if shape.experts is None:
        return 0.0
    return 2.0 * moe_layers * shape.experts.per_token * 3 * shape.hidden * shape.experts.intermediate


def _links(stack: Stack) -> tuple[Link, ...]:
    protocols = _table()["interconnects"][stack.node.interconnect]
    forced = stack.node.env.get("NCCL_PROTO", stack.env.get("NCCL_PROTO"))
    names = [forced] if forced == "LL" else ["LL", "simple"]
    return tuple(Link(protocols[n]["hop_us"] / 1e6, protocols[n]["link_gb_s"] * 1e9) for n in names)


def _launch_kind(stack: Stack) -> str:
    if stack.engine.build == "cpu":
        return "cpu"
    return "eager" if stack.engine.flags.get("enforce-eager") else "graphs"


@cache
def _table() -> dict[str, Any]:
    text = resources.files("outrider.predict").joinpath("hardware.yaml").read_text(encoding="utf-8")
    table: dict[str, Any] = yaml.safe_load(text)
    return table
