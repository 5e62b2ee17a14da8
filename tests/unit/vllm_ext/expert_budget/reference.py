"""Routing under a budget, written out token by token in plain Python."""

from __future__ import annotations

import math
from collections import defaultdict


def probabilities(logits: list[float], scoring: str) -> list[float]:
    if scoring == "sigmoid":
        return [1 / (1 + math.exp(-x)) for x in logits]
    top = max(logits)
    powers = [math.exp(x - top) for x in logits]
    return [power / sum(powers) for power in powers]


def best(scores: dict[int, float], count: int) -> list[int]:
    """Of equals the lower number first."""
    return sorted(scores, key=lambda expert: (-scores[expert], expert))[:count]


def mixture(
    logits: list[float], bias: list[float], allowed: set[int], top_k: int, scoring: str, renormalize: bool, scale: float
) -> dict[int, float]:
    """A token's experts and their weights, chosen among those allowed."""
    scores = probabilities(logits, scoring)
    chosen = best({expert: scores[expert] + bias[expert] for expert in allowed}, top_k)
    total = sum(scores[expert] for expert in chosen) if renormalize else 1.0
    return {expert: scores[expert] / total * scale for expert in chosen}


def kept(mixtures: list[dict[int, float]], voters: int, budget: int, experts: int) -> set[int]:
    votes: dict[int, float] = defaultdict(float)
    for token in mixtures[:voters]:
        for expert, weight in token.items():
            votes[expert] += weight
    return set(best({expert: votes[expert] for expert in range(experts)}, budget))
