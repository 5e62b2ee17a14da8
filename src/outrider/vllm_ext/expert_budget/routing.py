"""The routing itself: who votes, which experts stay, and where tokens of the others go.

Pure functions on tensors of fixed shapes: no value is read by the host and no shape depends on one, so that they can
be captured in CUDA graphs. B and the number of voters are tensors too, so one graph serves every step. Every sum has
one order: ranks of a tensor-parallel group see the same logits and must choose the same experts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch

Tensor = Any
# Added to each vote, so that an expert whose weight rounds to nothing still counts as chosen.
_CHOSEN = 1e-30


@dataclass(frozen=True, slots=True)
class Routing:
    """How a layer's router makes weights of logits, as far as re-routing must do the same.

    Attributes:
        scoring: `softmax` or `sigmoid` of the logits.
        renormalize: weights of a token are divided by their sum.
        scale: factor on the weights (`routed_scaling_factor`).
    """

    scoring: Literal["softmax", "sigmoid"]
    renormalize: bool
    scale: float = 1.0

    def scores(self, logits: Tensor) -> Tensor:
        """Routing probabilities, [tokens, experts], float32."""
        logits = logits.float()
        return torch.softmax(logits, dim=-1) if self.scoring == "softmax" else logits.sigmoid()


def chosen_weight(weights: Tensor, ids: Tensor, voters: Tensor, experts: int) -> Tensor:
    """The vote: the summed weight that the step's tokens give each expert, 0 for experts that none has chosen.

    Args:
        weights: [tokens, top_k], as the router gave them.
        ids: [tokens, top_k], whole numbers; the engine writes -1 for padding.
        voters: number of tokens that are real, a tensor without dimensions; rows from there on are padding.
        experts: N.

    Returns:
        [experts], float32.
    """
    rows = torch.arange(ids.shape[0], device=ids.device).unsqueeze(1)
    real = (rows < voters) & (ids >= 0)
    mass = torch.where(real, weights.float() + _CHOSEN, 0.0)
    # Ids of a row differ, so nothing is added in an order of chance.
    spread = torch.zeros(ids.shape[0], experts, dtype=torch.float32, device=ids.device)
    return spread.scatter_(1, ids.clamp(min=0).long(), mass).sum(0)


def kept_experts(votes: Tensor, budget: Tensor) -> Tensor:
    """The B experts with the most votes; of equals, those with the lower number.

    Args:
        votes: [experts].
        budget: B, a tensor without dimensions.

    Returns:
        Which stay, [experts], bool.
    """
    order = torch.argsort(votes, descending=True, stable=True)
    place = torch.arange(order.shape[0], device=order.device)
    rank = torch.empty_like(order).scatter_(0, order, place)
    return rank < budget


def reroute(
    weights: Tensor, ids: Tensor, logits: Tensor, bias: Tensor | None, keep: Tensor, routing: Routing
) -> tuple[Tensor, Tensor]:
    """Choose anew among the experts that stay; tokens that lose none are left bit by bit as they were.

    Args:
        weights: [tokens, top_k], as the router gave them.
        ids: [tokens, top_k].
        logits: [tokens, experts].
        bias: [experts], steers the choice but not the weights (`e_score_correction_bias`); None if there is none.
        keep: [experts], bool, at least top_k of them.
        routing: how weights are made.

    Returns:
        weights and ids of the same shapes and types.
    """
    scores = routing.scores(logits)
    choice = scores if bias is None else scores + bias.float()
    chosen = torch.topk(choice.masked_fill(~keep, float("-inf")), ids.shape[1], dim=-1).indices
    fresh = scores.gather(1, chosen)
    if routing.renormalize:
        fresh = fresh / fresh.sum(dim=-1, keepdim=True).clamp(min=1e-20)
    if routing.scale != 1.0:
        fresh = fresh * routing.scale
    same = (keep[ids.clamp(min=0).long()] | (ids < 0)).all(dim=1, keepdim=True)
    return torch.where(same, weights, fresh.to(weights.dtype)), torch.where(same, ids, chosen.to(ids.dtype))


def drop(weights: Tensor, ids: Tensor, keep: Tensor, votes: Tensor) -> tuple[Tensor, Tensor]:
    """Leave out what experts outside the budget would have given; what stays keeps its weight.

    Kernels need an expert in every place, and some need them to differ: a dropped place is given, with weight 0, to the
    most voted expert that stays and that the token does not have yet. Such experts are read anyway.

    Args:
        weights: [tokens, top_k], as the router gave them.
        ids: [tokens, top_k].
        keep: [experts], bool, at least top_k of them.
        votes: [experts].
    """
    whole = ids.clamp(min=0).long()
    stays = keep[whole] | (ids < 0)
    taken = torch.zeros(ids.shape[0], keep.shape[0], dtype=torch.bool, device=ids.device).scatter_(1, whole, value=True)
    free = torch.where(keep & ~taken, votes, -1.0)
    fillers = torch.topk(free, ids.shape[1], dim=-1).indices
    nth = ((~stays).cumsum(dim=1) - 1).clamp(min=0)
    return weights * stays.to(weights.dtype), torch.where(stays, ids, fillers.gather(1, nth).to(ids.dtype))


def distinct(ids: Tensor, voters: Tensor, experts: int) -> Tensor:
    """How many experts the real tokens read, a tensor without dimensions."""
    ones = torch.ones_like(ids, dtype=torch.float32)
    return (chosen_weight(ones, ids, voters, experts) > 0).sum()
