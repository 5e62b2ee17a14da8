"""KV cache: bytes a token on one GPU, and tokens that fit into so many bytes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from outrider.preflight.facts.shape import Shape

# Default page sizes of vLLM 0.32/0.33: the CPU attention kernels take 128, GPU backends 16.
CPU_BLOCK = 128
GPU_BLOCK = 16
_DTYPE_BYTES = {"float32": 4, "float": 4}


def cache_dtype_bytes(kv_cache_dtype: str, model_dtype: str | None) -> int:
    """Bytes of one cached value: `auto` keeps the model's dtype, every fp8 spelling is one byte."""
    if kv_cache_dtype == "auto":
        return _DTYPE_BYTES.get(model_dtype or "", 2)
    return 1 if kv_cache_dtype.startswith("fp8") else 2


def kv_bytes_per_token(shape: Shape, *, tensor: int = 1, pipeline: int = 1, value_bytes: int = 2) -> int:
    """Bytes a token takes on the GPU with most layers.

    MLA caches one vector of kv_lora_rank + rope_dim a layer, the same on every tensor-parallel rank. Others
    cache keys and values of the rank's own KV heads; a head is copied where there are more ranks than heads.
    Sliding windows are counted as full attention (an upper bound).
    """
    layers = math.ceil(shape.layers / pipeline)
    if shape.mla is not None:
        return layers * (shape.mla.kv_lora_rank + shape.mla.rope_dim) * value_bytes
    return layers * 2 * math.ceil(shape.kv_heads / tensor) * shape.head_dim * value_bytes


def kv_tokens(nbytes: int, bytes_per_token: int, block: int) -> int:
    """Tokens in whole pages."""
    if nbytes <= 0 or bytes_per_token <= 0:
        return 0
    return nbytes // (bytes_per_token * block) * block
