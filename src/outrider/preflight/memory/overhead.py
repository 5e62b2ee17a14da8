"""What the engine needs on a GPU beside weights and KV cache. Estimates, each with where it comes from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from outrider.preflight.facts.shape import Shape

MIB = 1 << 20
GIB = 1 << 30
# CUDA context, libraries and allocator slack of one process.
_CONTEXT = 600 * MIB
# NCCL's channels and protocols: about 1 GiB with 8 ranks over PCIe and 8 channels; NCCL_BUFFSIZE and
# NCCL_MIN_NCHANNELS move it.
_NCCL_PER_RANK = 128 * MIB
# One captured graph's private memory, by layer; kernels' parameters and workspaces.
_GRAPH_PER_LAYER = int(0.15 * MIB)
_GRAPH_SIZES = 51
# Tokens of the MLA prefill workspace (determine_chunked_prefill_workspace_size, mla_attention.py).
_MLA_WORKSPACE_TOKENS = 64 << 10


@dataclass(frozen=True, slots=True)
class Overhead:
    """Bytes on one GPU.

    Attributes:
        activations: peak of the largest step.
        buffers: CUDA context and NCCL.
        graphs: captured CUDA graphs.
    """

    activations: int
    buffers: int
    graphs: int

    @property
    def total(self) -> int:
        """All of it."""
        return self.activations + self.buffers + self.graphs


def default_batched_tokens(vram_gib: float) -> int:
    """`max_num_batched_tokens` of the server when no flag sets it (engine/arg_utils.py, 0.33.0)."""
    if vram_gib >= 160:
        return 16384
    return 8192 if vram_gib >= 70 else 2048


def overhead(
    shape: Shape, *, tensor: int, ranks: int, batched_tokens: int, max_num_seqs: int, k: int, eager: bool
) -> Overhead:
    """Estimate it.

    Args:
        shape: the target's.
        tensor: tensor-parallel size.
        ranks: GPUs that communicate.
        batched_tokens: tokens of the largest step.
        max_num_seqs: requests of the largest decode step.
        k: speculative tokens a request, 0 without speculation.
        eager: no CUDA graphs are captured.
    """
    # Residual, normalised input, attention in and out, feed-forward in and out: six rows of hidden a token.
    rows = 6 * shape.hidden * 2
    wide = 2 * -(-shape.intermediate // tensor) * 2
    activations = batched_tokens * (rows + wide)
    if shape.experts is not None:
        # The fused kernel keeps every routed copy of a token: its input width and the expert's inner width.
        inner = 2 * -(-shape.experts.intermediate // tensor)
        activations += batched_tokens * shape.experts.per_token * (shape.hidden + inner) * 2
    if shape.mla is not None:
        heads = -(-shape.heads // tensor)
        width = shape.mla.kv_lora_rank + shape.mla.rope_dim
        width += heads * (shape.mla.nope_dim + shape.mla.rope_dim + shape.mla.value_dim)
        activations += _MLA_WORKSPACE_TOKENS * width * 2
    # Logits in FP32 and one copy of them for sampling.
    activations += 2 * 4 * max_num_seqs * (k + 1) * shape.vocabulary
    buffers = _CONTEXT + (_NCCL_PER_RANK * ranks if ranks > 1 else 0)
    graphs = 0 if eager else _GRAPH_PER_LAYER * shape.layers * _GRAPH_SIZES
    return Overhead(activations, buffers, graphs)
