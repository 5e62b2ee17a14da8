"""How many experts a batch of tokens touches, and what reading them costs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

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


def expert_bytes_read(
    machine: Machine, tokens: Floats, overlap: float, skew: float, bound: Floats | float = math.inf
) -> Floats:
    """Bytes of routed experts that one step reads on one GPU; with an expert budget, of at most `bound` a layer."""
    if not machine.experts:
        return np.zeros_like(tokens)
    distinct = np.minimum(distinct_experts(tokens, machine.experts, machine.per_token, overlap, skew), bound)
    return distinct * machine.expert_bytes * machine.moe_layers
