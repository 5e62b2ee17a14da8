"""Does it fit, and what then: the memory findings and figures of one variant."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from outrider.preflight.memory.kv import CPU_BLOCK, GPU_BLOCK, cache_dtype_bytes, kv_bytes_per_token, kv_tokens
from outrider.preflight.memory.overhead import GIB, Overhead, default_batched_tokens, overhead
from outrider.preflight.memory.weights import Split, drafter_bytes, grouped, tensors_from_shape, weight_bytes
from outrider.preflight.report import Finding, MemoryFigures, found

if TYPE_CHECKING:
    from outrider.preflight.checks.case import Case
    from outrider.preflight.facts.shape import Shape

# Defaults of vLLM 0.33.0 (config/cache.py, engine/arg_utils.py).
_DEFAULT_UTILIZATION = 0.92
_DEFAULT_SEQS = 256
# Above this, NCCL has failed to allocate beside the engine's share (flagship node).
_CROWDED = 0.95
# Methods whose drafter keeps keys and values of its own.
_CACHING = frozenset({"eagle", "eagle3", "dflash", "dspark", "draft_model", "mtp"})


@dataclass(frozen=True, slots=True)
class _Parts:
    """Bytes on one GPU, and where they were read."""

    budget: int
    weights: int
    over: Overhead
    source: str


@dataclass(frozen=True, slots=True)
class _Drafter:
    nbytes: int = 0
    kv_per_token: int = 0
    source: str = ""


def check_memory(case: Case) -> tuple[list[Finding], MemoryFigures | None]:
    """Findings and figures; no figures where shapes or the node's memory are unknown."""
    place = f"stack {case.stack.name}, memory"
    if case.shape is None:
        return [found("MEM005", place, "no usable config of the target")], None
    if case.stack.engine.build == "cpu":
        return _on_cpu(case, case.shape, place)
    if case.stack.node.vram_gib is None:
        return [found("MEM005", f"stack {case.stack.name}, node.vram_gib", "not set")], None
    figures = _on_gpu(case, case.shape, case.stack.node.vram_gib)
    return [*_judge(case, figures, place), *_stated_size(case)], figures


def _on_cpu(case: Case, shape: Shape, place: str) -> tuple[list[Finding], MemoryFigures | None]:
    gib = case.stack.memory.cpu_kv_gib
    if gib is None:
        return [found("MEM006", f"{place}.cpu_kv_gib", "not set"), *_stated_size(case)], None
    drafter = _drafter(case, shape, 1)
    per_token = kv_bytes_per_token(shape, value_bytes=_value_bytes(case, shape)) + drafter.kv_per_token
    block = int(case.flags.get("block-size", 16 if shape.mla else CPU_BLOCK))
    tensors, source = _target_tensors(case, shape)
    parts = _Parts(gib * GIB, weight_bytes(tensors, shape, Split()), Overhead(0, 0, 0), source)
    figures = _figures(case, parts, drafter, per_token, kv_tokens(gib * GIB, per_token, block))
    return [*_judge(case, figures, place), *_stated_size(case)], figures


def _on_gpu(case: Case, shape: Shape, vram_gib: float) -> MemoryFigures:
    parallel, memory, flags = case.stack.parallel, case.stack.memory, case.flags
    budget = int(vram_gib * GIB * (memory.gpu_utilization or _DEFAULT_UTILIZATION))
    split = Split(
        tensor=parallel.tensor,
        pipeline=parallel.pipeline,
        data=parallel.data,
        expert=parallel.expert,
        text_only=bool(flags.get("language-model-only", False)),
    )
    tensors, source = _target_tensors(case, shape)
    weights = weight_bytes(tensors, shape, split)
    drafter = _drafter(case, shape, parallel.tensor)
    over = overhead(
        shape,
        tensor=parallel.tensor,
        ranks=parallel.tensor * parallel.pipeline,
        batched_tokens=int(flags.get("max-num-batched-tokens", default_batched_tokens(vram_gib))),
        max_num_seqs=memory.max_num_seqs or _DEFAULT_SEQS,
        k=case.spec.k if case.spec else 0,
        eager=bool(flags.get("enforce-eager", False)),
    )
    per_token = drafter.kv_per_token + kv_bytes_per_token(
        shape, tensor=parallel.tensor, pipeline=parallel.pipeline, value_bytes=_value_bytes(case, shape)
    )
    left = budget - weights - drafter.nbytes - over.total
    parts = _Parts(budget, weights, over, source)
    return _figures(case, parts, drafter, per_token, kv_tokens(left, per_token, GPU_BLOCK))


def _figures(case: Case, parts: _Parts, drafter: _Drafter, per_token: int, tokens: int) -> MemoryFigures:
    seqs = case.stack.memory.max_num_seqs
    return MemoryFigures(
        variant=case.name,
        budget=parts.budget,
        weights=parts.weights,
        drafter=drafter.nbytes,
        activations=parts.over.activations,
        buffers=parts.over.buffers,
        graphs=parts.over.graphs,
        kv_bytes_per_token=per_token,
        kv_tokens=tokens,
        longest_at_full_batch=min(tokens // seqs, case.stack.target.max_model_len) if seqs else None,
        requests_at_full_length=tokens // case.stack.target.max_model_len,
        source=parts.source + (f"; drafter: {drafter.source}" if drafter.source else ""),
    )


def _target_tensors(case: Case, shape: Shape) -> tuple[list[tuple[str, int]], str]:
    if case.weights is not None:
        return list(case.weights), "safetensors headers"
    return list(tensors_from_shape(shape)), "shape in the config, no headers read"


def _value_bytes(case: Case, shape: Shape) -> int:
    served = case.stack.target.dtype
    return cache_dtype_bytes(case.stack.memory.kv_cache_dtype, shape.dtype if served == "auto" else served)


def _drafter(case: Case, target: Shape, tensor: int) -> _Drafter:
    spec = case.spec
    if spec is None or spec.method not in _CACHING:
        return _Drafter()
    value_bytes = _value_bytes(case, target)
    own = spec.options.get("draft_tensor_parallel_size")
    ranks = own if isinstance(own, int) and not isinstance(own, bool) and own > 0 else tensor
    one_layer = kv_bytes_per_token(target, tensor=tensor, value_bytes=value_bytes) // target.layers
    if spec.method == "mtp":
        # Prediction layers lie in the target's own checkpoint and are counted with its headers.
        return _Drafter(0, one_layer * max(target.mtp_layers, 1), "layers of the target")
    shape = case.view.shape if case.view else None
    if shape is None:
        stated = int(spec.drafter.weight_gb * 1e9) if spec.drafter else 0
        source = f"{stated / 1e9:.1f} GB as the stack states, one layer like the target's"
        return _Drafter(stated // ranks, one_layer, source if stated else "size unknown, counted as 0 bytes")
    per_token = kv_bytes_per_token(shape, tensor=ranks, value_bytes=value_bytes)
    if case.drafter is not None and case.drafter.tensors is not None:
        return _Drafter(drafter_bytes(grouped(case.drafter.tensors), shape, ranks), per_token, "headers")
    return _Drafter(drafter_bytes(tensors_from_shape(shape), shape, ranks), per_token, "shape in its config")


def _judge(case: Case, figures: MemoryFigures, place: str) -> list[Finding]:
    findings: list[Finding] = []
    length, cpu = case.stack.target.max_model_len, case.stack.engine.build == "cpu"
    left = figures.budget - (
        0 if cpu else figures.weights + figures.drafter + figures.activations + figures.buffers + figures.graphs
    )
    if left <= 0:
        findings.append(found("MEM001", place, f"{-left / GIB:.1f} GiB over: {_sum(figures)}"))
    elif figures.kv_tokens < length:
        evidence = f"{figures.kv_tokens:,} tokens fit, max_model_len is {length:,}: {_sum(figures)}"
        findings.append(found("MEM002", place, evidence, fix=_knobs(case, figures, left)))
    utilization = case.stack.memory.gpu_utilization or 0
    ranks = case.stack.parallel.tensor * case.stack.parallel.pipeline
    if not cpu and utilization >= _CROWDED and ranks > 1:
        findings.append(found("MEM003", f"{place}.gpu_utilization", f"{utilization} with {ranks} GPUs"))
    if left > 0:
        findings.append(found("MEM004", place, f"{_sum(figures)}; {_room(figures, length)} ({figures.source})"))
    return findings


def _knobs(case: Case, figures: MemoryFigures, left: int) -> str:
    """What to turn, and how far, so that one request of the served length fits."""
    lacking = figures.kv_bytes_per_token * case.stack.target.max_model_len - left
    choices = [f"lower `target.max_model_len` to {figures.kv_tokens}"] if figures.kv_tokens else []
    if case.stack.engine.build == "cpu":
        return f"Set `memory.cpu_kv_gib` to {math.ceil((figures.budget + lacking) / GIB)}, or {' or '.join(choices)}."
    vram = (case.stack.node.vram_gib or 1.0) * GIB
    utilization = math.ceil(100 * (figures.budget + lacking) / vram) / 100
    if utilization < _CROWDED:
        choices.append(f"raise `memory.gpu_utilization` to {utilization:.2f}")
    if case.stack.memory.kv_cache_dtype == "auto":
        choices.append("halve the cache with `memory.kv_cache_dtype: fp8` (lossy)")
    choices.append("split over more GPUs")
    return f"One of: {'; '.join(choices)}."


def _sum(figures: MemoryFigures) -> str:
    parts = {
        "weights": figures.weights,
        "drafter": figures.drafter,
        "activations": figures.activations,
        "CUDA and NCCL": figures.buffers,
        "graphs": figures.graphs,
    }
    listed = ", ".join(f"{name} {nbytes / GIB:.1f}" for name, nbytes in parts.items() if nbytes)
    return f"budget {figures.budget / GIB:.1f} GiB; {listed}"


def _room(figures: MemoryFigures, length: int) -> str:
    room = f"KV {figures.kv_bytes_per_token:,} B a token: {figures.kv_tokens:,} tokens"
    room += f", {figures.requests_at_full_length} requests of {length:,}"
    if figures.longest_at_full_batch is not None:
        room += f", or {figures.longest_at_full_batch:,} tokens each at full batch"
    return room


def _stated_size(case: Case) -> list[Finding]:
    """The stack's `weight_gb` against the files."""
    findings = []
    pairs = [(case.target, case.stack.target.weight_gb, f"stack {case.stack.name}, target.weight_gb")]
    if case.drafter is not None and case.spec is not None and case.spec.drafter is not None:
        pairs.append((case.drafter, case.spec.drafter.weight_gb, case.place("speculation.drafter.weight_gb")))
    for checkpoint, stated, where in pairs:
        actual = sum(checkpoint.shards.values()) / 1e9
        if checkpoint.shards and stated and abs(actual - stated) > max(0.1 * stated, 0.05):
            findings.append(found("MEM007", where, f"stated {stated} GB, the files have {actual:.2f} GB"))
    return findings
