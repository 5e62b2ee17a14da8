"""Memory model: weights and KV cache of one GPU, what else the engine needs, and what then fits."""

from outrider.preflight.memory.fit import check_memory
from outrider.preflight.memory.kv import kv_bytes_per_token, kv_tokens
from outrider.preflight.memory.weights import Split, drafter_bytes, tensors_from_shape, weight_bytes

__all__ = [
    "Split",
    "check_memory",
    "drafter_bytes",
    "kv_bytes_per_token",
    "kv_tokens",
    "tensors_from_shape",
    "weight_bytes",
]
