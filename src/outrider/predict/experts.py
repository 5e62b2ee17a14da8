"""How many experts a batch of tokens touches, and what reading them costs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import betainc

if TYPE_CHECKING:
    from outrider.campaign.resampling import Floats
    from outrider.predict.traffic import Machine


def distinct_experts(tokens: Floats, experts: int, per_token: int, overlap: float = 1.0, skew: float = 0.0) -> Floats:
    """Expected distinct experts of one layer.

    Uniform routing touches N (1 - (1 - top_k/N)^T). Real routing overlaps in two ways, which differ in how they grow:
    neighbouring tokens agree (an effective number of tokens T^overlap; a model with 256 experts, 8 a token, touched
    8, 22, 36, 56 of them at 1, 4, 8, 16 tokens, which is 0.75 at every size), and some experts are more popular than
    others (popularity gamma-distributed with variance `skew`, so that an expert stays untouched with probability
    (1 + skew x)^(-1/skew), x = expected visits), which only tells at large T.

    Args:
        tokens: T of the whole batch, any shape.
        experts: N.
        per_token: top_k.
        overlap: 1 where tokens are independent, less where they agree.
        skew: 0 where all experts are equally popular.
    """
    effective = np.asarray(tokens, dtype=float) ** overlap
    visits = -np.log1p(-per_token / experts) * effective
    untouched = np.exp(-visits) if skew <= 0 else (1 + skew * visits) ** (-1 / skew)
    result: Floats = experts * (1 - untouched)
    # One token touches exactly top_k.
    return np.maximum(result, per_token)


# Rows that one pass over an expert's weights serves, smallest first, and how full a block may be before the next size
# is taken: vLLM's Marlin kernel, which counts by all experts of a layer, whatever a budget leaves of them.
_BLOCKS = (8, 16, 32, 48, 64)
_FULL = 0.9
# A further block of an expert's rows reads the weights once more, from the cache: its cost as a share of the first
# one's. From budgets of 48 to 192 experts at 32, 128 and 512 tokens on an H200 (8 layers of Kimi-K2.5's shape, INT4):
# 0.27 of what those cells say an expert costs, 0.45 of what the model says; 0.27 to 0.48 without one of the sizes.
REVISIT = 0.35
REVISIT_RANGE = (0.25, 0.5)


def further_blocks(tokens: Floats, read: Floats, experts: int, per_token: int) -> Floats:
    """Expected blocks of rows of one layer beyond the first of each expert, any shape.

    Rows of an expert are binomial, each of T tokens choosing it with probability top_k / R.

    Args:
        tokens: T of the whole batch.
        read: R, the distinct experts that they go to.
        experts: N of the layer, which sizes a block.
        per_token: top_k.
    """
    tokens, read = np.broadcast_arrays(np.asarray(tokens, dtype=float), np.asarray(read, dtype=float))
    share = np.minimum(per_token / read, 1.0)
    mean = tokens * per_token / experts
    block = np.array((*_BLOCKS, _BLOCKS[-1]))[np.searchsorted(np.array(_BLOCKS) * _FULL, mean, side="right")]
    result = np.zeros(tokens.shape)
    for nth in range(1, int(np.max(tokens / block, initial=0.0)) + 1):
        more = nth * block  # an expert has an n-th further block if it has more rows than this
        result += np.where(more < tokens, betainc(more + 1.0, np.maximum(tokens - more, 1e-9), share), 0.0)
    return result * read


def expert_bytes_read(
    machine: Machine,
    tokens: Floats,
    overlap: float,
    skew: float,
    bound: Floats | float = math.inf,
    revisit: float = REVISIT,
) -> Floats:
    """Bytes of routed experts that one step reads on one GPU; with an expert budget, of at most `bound` a layer.

    Rows that a budget sends to fewer experts fill more blocks there, and each costs `revisit` of an expert's bytes.
    What blocks cost without a budget is in the share of bandwidth that was fitted.
    """
    if not machine.experts:
        return np.zeros_like(tokens)
    free = distinct_experts(tokens, machine.experts, machine.per_token, overlap, skew)
    read = np.minimum(free, bound)
    if np.any(read < free):
        blocks = [further_blocks(tokens, those, machine.experts, machine.per_token) for those in (read, free)]
        read = read + revisit * (blocks[0] - blocks[1])
    return read * machine.expert_bytes * machine.moe_layers
