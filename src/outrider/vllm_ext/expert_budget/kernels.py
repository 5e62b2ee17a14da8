"""`routing.reroute` with its votes as three Triton kernels, for CUDA; the same result up to rounding.

As tensor operations it is forty small kernels a layer, which in a model of sixty layers cost more than the experts that
are saved. Every sum has a fixed order, as there.
"""

from typing import Any

import torch
import triton
import triton.language as tl

from outrider.vllm_ext.expert_budget.routing import Routing

Tensor = Any
_EXPERTS_A_PROGRAM = 32
_PAIRS_AT_ONCE = 64
# Numbers are not specialised: what the first pass compiles, outside any graph, serves every batch size.


@triton.jit(do_not_specialize=["pairs", "experts"])
def _vote(weights, ids, voters, votes, pairs, experts, top_k: tl.constexpr, width: tl.constexpr, at_once: tl.constexpr):
    """Votes of `width` experts: the sum over all (token, place) pairs that name them, and whether any does."""
    expert = tl.program_id(0) * width + tl.arange(0, width)
    real = tl.load(voters) * top_k
    total = tl.zeros((width,), dtype=tl.float32)
    for begin in range(0, pairs, at_once):
        pair = begin + tl.arange(0, at_once)
        votes_at = (pair < pairs) & (pair < real)
        chosen = tl.load(ids + pair, mask=votes_at, other=-1).to(tl.int32)
        mass = tl.load(weights + pair, mask=votes_at, other=0.0).to(tl.float32) + 1e-30
        total += tl.sum(tl.where(chosen[:, None] == expert[None, :], mass[:, None], 0.0), axis=0)
    tl.store(votes + expert, total, mask=expert < experts)


@triton.jit(do_not_specialize=["experts"])
def _keep(votes, budget, keep, experts, width: tl.constexpr, padded: tl.constexpr):
    """Whether each of `width` experts is among the B most voted; of equals the lower number."""
    expert = tl.program_id(0) * width + tl.arange(0, width)
    other = tl.arange(0, padded)
    mine = tl.load(votes + expert, mask=expert < experts, other=-1.0)
    theirs = tl.load(votes + other, mask=other < experts, other=-1.0)
    ahead = (theirs[None, :] > mine[:, None]) | (
        (theirs[None, :] == mine[:, None]) & (other[None, :] < expert[:, None])
    )
    rank = tl.sum(ahead.to(tl.int32), axis=1)
    tl.store(keep + expert, (rank < tl.load(budget)).to(tl.int8), mask=expert < experts)


@triton.jit(do_not_specialize=["experts", "row_stride"])
def _choose(
    weights, ids, logits, bias, keep, new_weights, new_ids, experts, row_stride, scale,
    top_k: tl.constexpr, places: tl.constexpr, padded: tl.constexpr,
    softmax: tl.constexpr, renormalize: tl.constexpr, has_bias: tl.constexpr,
):  # fmt: skip
    """One token: choose anew among the experts that stay, unless it loses none."""
    token = tl.program_id(0)
    expert = tl.arange(0, padded)
    inside = expert < experts
    row = tl.load(logits + token.to(tl.int64) * row_stride + expert, mask=inside, other=float("-inf")).to(tl.float32)
    if softmax:
        power = tl.exp(row - tl.max(row, axis=0))
        scores = power / tl.sum(power, axis=0)
    else:
        scores = 1.0 / (1.0 + tl.exp(-row))
    choice = scores
    if has_bias:
        choice = scores + tl.load(bias + expert, mask=inside, other=0.0).to(tl.float32)
    stays = tl.load(keep + expert, mask=inside, other=0) != 0
    choice = tl.where(stays, choice, float("-inf"))
    place = tl.arange(0, places)
    fresh = tl.zeros((places,), dtype=tl.float32)
    fresh_ids = tl.zeros((places,), dtype=tl.int32)
    for i in tl.static_range(top_k):
        best = tl.minimum(tl.argmax(choice, axis=0), experts - 1)
        here = expert == best
        fresh = tl.where(place == i, tl.sum(tl.where(here, scores, 0.0), axis=0), fresh)
        fresh_ids = tl.where(place == i, best, fresh_ids)
        choice = tl.where(here, float("-inf"), choice)
    if renormalize:
        fresh = fresh / tl.maximum(tl.sum(fresh, axis=0), 1e-20)
    fresh = fresh * scale
    at = token * top_k + place
    within = place < top_k
    own_ids = tl.load(ids + at, mask=within, other=-1).to(tl.int32)
    own = tl.load(weights + at, mask=within, other=0.0)
    kept = tl.load(keep + tl.maximum(own_ids, 0), mask=within, other=1)
    lost = tl.sum(((kept == 0) & (own_ids >= 0)).to(tl.int32), axis=0)
    tl.store(new_weights + at, tl.where(lost == 0, own, fresh.to(own.dtype)), mask=within)
    tl.store(new_ids + at, tl.where(lost == 0, own_ids, fresh_ids), mask=within)


def reroute_fused(
    weights: Tensor,
    ids: Tensor,
    logits: Tensor,
    bias: Tensor | None,
    *,
    voters: Tensor,
    budget: Tensor,
    routing: Routing,
) -> tuple[Tensor, Tensor, Tensor]:
    """Votes, the experts that stay, and the choice among them.

    Args:
        weights: [tokens, top_k].
        ids: [tokens, top_k].
        logits: [tokens, experts].
        bias: [experts] or None.
        voters: number of real tokens, a tensor without dimensions.
        budget: B, likewise.
        routing: how weights are made.

    Returns:
        weights and ids as given, changed; and the votes, [experts].
    """
    weights, ids = weights.contiguous(), ids.contiguous()
    logits = logits if logits.stride(-1) == 1 else logits.contiguous()
    tokens, top_k = ids.shape
    experts = logits.shape[-1]
    padded = triton.next_power_of_2(experts)
    votes = torch.empty(experts, dtype=torch.float32, device=ids.device)
    keep = torch.empty(experts, dtype=torch.int8, device=ids.device)
    new_weights, new_ids = torch.empty_like(weights), torch.empty_like(ids)
    parts = (triton.cdiv(experts, _EXPERTS_A_PROGRAM),)
    _vote[parts](
        weights,
        ids,
        voters,
        votes,
        tokens * top_k,
        experts,
        top_k=top_k,
        width=_EXPERTS_A_PROGRAM,
        at_once=_PAIRS_AT_ONCE,
    )
    _keep[parts](votes, budget, keep, experts, width=_EXPERTS_A_PROGRAM, padded=padded)
    _choose[(tokens,)](
        weights, ids, logits, bias if bias is not None else votes, keep, new_weights, new_ids, experts,
        logits.stride(0), routing.scale,
        top_k=top_k, places=triton.next_power_of_2(top_k), padded=padded, softmax=routing.scoring == "softmax",
        renormalize=routing.renormalize, has_bias=bias is not None,
    )  # fmt: skip
    return new_weights, new_ids, votes
