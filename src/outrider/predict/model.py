"""Step time, part by part, of many places at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from outrider.predict.allreduce import step_collectives_s
from outrider.predict.attention import attention_s
from outrider.predict.draft import draft_s
from outrider.predict.experts import expert_bytes_read

if TYPE_CHECKING:
    from outrider.campaign.resampling import Floats
    from outrider.predict.factors import Factors
    from outrider.predict.places import Places
    from outrider.predict.traffic import Machine

PARTS = ("launch", "attention", "dense", "experts", "allreduce", "draft")
# Passes over FP32 logits of the vocabulary while a token is chosen: cast, softmax, compare, write back.
_LOGIT_PASSES = 6


def drafted_k(k: int, share: float) -> float:
    """Proposed tokens of the mean step: a look-up that finds something at 40 % of steps verifies 0.4 k tokens.

    Exact for parts that grow with tokens; the union of experts, which bends, it overstates a little.

    Args:
        k: proposed tokens of a step that drafts.
        share: of steps that draft; taken as at least 1 %, because the look-up itself runs at every step.
    """
    return k * max(share, 0.01)


def step_parts(machine: Machine, at: Places, factors: Factors) -> dict[str, Floats]:
    """Seconds of each part of a step, shape (n,): t_launch + t_attention + t_dense + t_experts + t_allreduce + t_draft.

    Reading weights and computing with them are added, not overlapped: with few rows an expert, each tile waits for
    its weights. `dense` holds projections, shared experts, output head and sampling.
    """
    tokens = at.tokens
    stream, experts = machine.bandwidth * factors.stream, machine.bandwidth * factors.expert_stream
    compute = machine.peak_flops * factors.compute
    logits = _LOGIT_PASSES * 4.0 * tokens * machine.vocabulary
    return {
        "launch": np.full_like(tokens, (machine.step_s + machine.layers * machine.layer_s) * factors.launch),
        "attention": attention_s(machine, at, factors.kv_stream, factors.saturation),
        "dense": (machine.dense_bytes + logits) / stream + tokens * machine.dense_flops / compute,
        "experts": expert_bytes_read(machine, tokens, factors.overlap, factors.skew, at.bound, at.revisit) / experts
        + tokens * machine.routed_flops / compute,
        "allreduce": step_collectives_s(machine, tokens, at.context_ranks, factors.hop, factors.link),
        "draft": draft_s(machine, at, factors),
    }


def step_s(machine: Machine, at: Places, factors: Factors) -> Floats:
    """Seconds of one step, shape (n,)."""
    result: Floats = np.sum(list(step_parts(machine, at, factors).values()), axis=0)
    return result
