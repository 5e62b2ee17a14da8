"""Which CUDA graphs the engine captures, in tokens, as far as the stack says.

Source: `VllmConfig._set_cudagraph_sizes` (vllm/config/vllm.py, 0.32.0 and 0.33.0).
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from outrider.preflight.facts.runner import compute_capability
from outrider.preflight.memory.overhead import default_batched_tokens

if TYPE_CHECKING:
    from collections.abc import Mapping

    from outrider.stack import Speculation, Stack

_CEILING = 512
_CEILING_SM100 = 1024
# Steps of the engine's own list of sizes: (from this size on, every so many tokens).
_GRID = ((256, 16), (8, 8), (4, 4), (2, 2))


@dataclass(frozen=True, slots=True)
class DecodeStep:
    """The largest decode step of a variant.

    Attributes:
        requests: decoded together.
        k: tokens drafted for each.
    """

    requests: int
    k: int

    @property
    def tokens(self) -> int:
        """Tokens that the target computes in it."""
        return self.requests * (self.k + 1)


@dataclass(frozen=True, slots=True)
class Captured:
    """What is captured.

    Attributes:
        largest: tokens of the largest graph.
        why: the setting, or the engine's default, that it follows from.
        listed: whether the stack lists the sizes one by one.
        batched_tokens: most tokens of any step, None if unknown.
    """

    largest: int
    why: str
    listed: bool
    batched_tokens: int | None


def largest_decode_step(requests: int, spec: Speculation | None) -> DecodeStep:
    """The widest step that up to so many requests can ask for; a schedule drafts less in large batches."""
    if spec is None:
        return DecodeStep(requests, 0)
    if spec.auto or not spec.schedule:
        return DecodeStep(requests, max([spec.k, *(k for _, _, k in spec.schedule or ())]))
    # Batches above the last band take its k.
    bands = [*spec.schedule[:-1], (spec.schedule[-1][0], requests, spec.schedule[-1][2])]
    steps = [DecodeStep(min(last, requests), k) for first, last, k in bands if first <= requests]
    return max(steps, key=lambda step: step.tokens)


def captured(stack: Stack, flags: Mapping[str, Any], step: DecodeStep) -> Captured | None:
    """What a variant with these flags captures; None without graphs, or where the stack's setting is not understood."""
    config = _compilation(flags)
    if config is None or not _has_graphs(flags, config):
        return None
    vram = stack.node.vram_gib
    stated = flags.get("max-num-batched-tokens")
    batched = int(stated) if stated is not None else default_batched_tokens(vram) if vram is not None else None
    sizes = flags.get("cudagraph-capture-sizes", config.get("cudagraph_capture_sizes"))
    ceiling = flags.get("max-cudagraph-capture-size", config.get("max_cudagraph_capture_size"))
    if sizes:
        fitting = [int(size) for size in sizes if batched is None or int(size) <= batched]
        return Captured(max(fitting, default=0), "cudagraph_capture_sizes", listed=True, batched_tokens=batched)
    if ceiling is not None:
        largest, why = _on_grid(int(ceiling)), f"max_cudagraph_capture_size {ceiling}"
    else:
        top = _CEILING_SM100 if (compute_capability(stack.node.accelerator) or 0) // 10 == 10 else _CEILING
        largest, why = min(2 * step.tokens, top), f"the engine's ceiling of {top}"
    if batched is not None and batched < largest:
        largest, why = batched, f"max-num-batched-tokens {batched}"
    return Captured(largest, why, listed=False, batched_tokens=batched)


def covering_size(step: DecodeStep) -> int:
    """The least size that covers the step, is on the engine's list, and is a multiple of k+1, as V1 needs."""
    multiple = math.lcm(16, step.k + 1)
    return -(-step.tokens // multiple) * multiple


def _compilation(flags: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The compilation config; None if it is not written as a mapping."""
    config = flags.get("compilation-config", {})
    if isinstance(config, str):
        try:
            config = json.loads(config)
        except ValueError:
            return None
    return config if isinstance(config, dict) else None


def _has_graphs(flags: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
    if flags.get("enforce-eager"):
        return False
    mode = config.get("cudagraph_mode")
    if mode is None:
        return str(flags.get("optimization-level", "2")).upper().removeprefix("O") != "0"
    return str(mode).upper() not in {"NONE", "0"}


def _on_grid(size: int) -> int:
    """The largest size of the engine's own list that is not above it."""
    stride = next((stride for start, stride in _GRID if size >= start), 1)
    return size // stride * stride
