"""The Triton kernels of the expert budget beside the tensor operations that they replace: same choice? how long?

On a GPU it compares and times both, replayed from CUDA graphs as in the engine. Without one it compares fewer shapes
in Triton's interpreter, as `tests/integration/vllm_ext/test_budget_kernels.py` does with a Triton of its own: one
in the embedded environment would make the CPU engine take another model runner.
"""

from __future__ import annotations

import itertools
import sys
import time
from typing import TYPE_CHECKING

import torch

from outrider.vllm_ext.expert_budget.kernels import reroute_fused
from outrider.vllm_ext.expert_budget.routing import Routing, chosen_weight, kept_experts, reroute

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
REPLAYS = 200


class Case:
    """One batch with the choice of its router."""

    def __init__(self, experts: int, top_k: int, tokens: int, routing: Routing, *, biased: bool) -> None:
        self.experts, self.routing = experts, routing
        self.logits = torch.randn(tokens, experts, device=DEVICE) * 2
        self.bias = torch.randn(experts, device=DEVICE) * 0.2 if biased else None
        scores = routing.scores(self.logits)
        chosen = torch.topk(scores if self.bias is None else scores + self.bias, top_k, dim=-1).indices
        weights = scores.gather(1, chosen)
        if routing.renormalize:
            weights = weights / weights.sum(-1, keepdim=True)
        self.weights, self.ids = weights * routing.scale, chosen.to(torch.int32)
        self.voters = torch.tensor(max(tokens - 1, 1), device=DEVICE)
        self.budget = torch.tensor(min(experts, top_k + experts // 6), device=DEVICE)

    def operations(self) -> tuple[Tensor, Tensor]:
        """As tensor operations."""
        votes = chosen_weight(self.weights, self.ids, self.voters, self.experts)
        keep = kept_experts(votes, self.budget)
        return reroute(self.weights, self.ids, self.logits, self.bias, keep, self.routing)

    def kernels(self) -> tuple[Tensor, Tensor]:
        """As three kernels."""
        weights, ids, _ = reroute_fused(
            self.weights, self.ids, self.logits, self.bias, voters=self.voters, budget=self.budget, routing=self.routing
        )
        return weights, ids


def differences() -> int:
    """How many of many shapes are routed differently."""
    torch.manual_seed(0)
    wrong = cases = 0
    shapes = [(16, 60, 384), (1, 2, 6, 8), (1, 3, 33, 130)] if DEVICE == "cuda" else [(16, 60), (1, 6), (1, 5)]
    for experts, top_k, tokens in itertools.product(*shapes):
        for scoring, renormalize, biased in itertools.product(("softmax", "sigmoid"), (True, False), (True, False)):
            case = Case(experts, top_k, tokens, Routing(scoring, renormalize, 2.5), biased=biased)
            (weights, ids), (fused_weights, fused_ids) = case.operations(), case.kernels()
            same = torch.equal(ids, fused_ids) and torch.allclose(weights, fused_weights, atol=1e-5)
            wrong, cases = wrong + (not same), cases + 1
    print(f"{cases} cases, {wrong} differ")
    return wrong


def microseconds(work: Callable[[], object]) -> float:
    """Of one call, replayed from a graph that holds twenty."""
    for _ in range(3):
        work()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(20):
            work()
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(REPLAYS):
        graph.replay()
    torch.cuda.synchronize()
    return (time.perf_counter() - began) / REPLAYS / 20 * 1e6


def main() -> None:
    """Compare, and on a GPU time."""
    wrong = differences()
    if DEVICE == "cuda":
        print(f"{torch.cuda.get_device_name()}, 384 experts, top_k 8, sigmoid with bias; microseconds a layer")
        for tokens in (1, 4, 32, 128, 512):
            case = Case(384, 8, tokens, Routing("sigmoid", renormalize=True, scale=2.827), biased=True)
            operations, kernels = microseconds(case.operations), microseconds(case.kernels)
            print(f"  {tokens:>4} tokens: operations {operations:.1f}, kernels {kernels:.1f}")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
