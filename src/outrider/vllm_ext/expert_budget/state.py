"""What a worker and the graphs that it captured share: B and the number of voters of the step, on the device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from outrider.vllm_ext.expert_budget.routing import chosen_weight, distinct, drop, kept_experts, reroute

if TYPE_CHECKING:
    from outrider.vllm_ext.expert_budget.routing import Routing
    from outrider.vllm_ext.expert_budget.settings import Settings

Tensor = Any


class Layer:
    """One wrapped MoE layer.

    Attributes:
        name: the engine's name of it.
        consulted: times that the engine asked our router; graphs that are replayed do not count.
    """

    def __init__(self, name: str, routing: Routing | None, experts: int, per_token: int) -> None:
        """See `Routing`; None where `drop` needs none."""
        self.name, self.routing, self.experts, self.per_token = name, routing, experts, per_token
        self.consulted = 0


class Budget:
    """The budget of one worker.

    The host decides before each step and writes two numbers; captured graphs read them when they are replayed. So a
    graph is right for every step that may run in it, piecewise ones included: with B = N it routes as the router did.
    Writing is a kernel launch that takes the number along: nothing waits, and nothing is written while both stay.
    """

    def __init__(self, settings: Settings, layers: list[Layer], device: Any) -> None:
        """Starts without a bound: every expert stays."""
        self.settings, self.layers = settings, layers
        widest = max(layer.experts for layer in layers)
        self._all = widest
        self._kept, self._voters = widest, 0
        self._device_kept = torch.full((), widest, dtype=torch.int64, device=device)
        self._device_voters = torch.zeros((), dtype=torch.int64, device=device)
        self._counts = torch.zeros(len(layers), 2, dtype=torch.int64, device=device)
        self.serving = False

    def set_step(self, tokens: int | None) -> int | None:
        """Put in force what holds for the next forward pass.

        Args:
            tokens: of a step that only decodes or verifies; None for any other step.

        Returns:
            B, None where there is no bound.
        """
        first = self.layers[0]
        kept = self._all if tokens is None else self.settings.budget(tokens, first.experts, first.per_token)
        if kept != self._kept:
            self._kept = kept
            self._device_kept.fill_(kept)
        if tokens is not None and tokens != self._voters:
            self._voters = tokens
            self._device_voters.fill_(tokens)
        return None if tokens is None else kept

    def route(self, index: int, weights: Tensor, ids: Tensor, logits: Tensor, bias: Tensor | None) -> tuple[Any, Any]:
        """What the layer's router has chosen, brought under the budget of the step.

        Args:
            index: of the layer.
            weights: [tokens, top_k].
            ids: [tokens, top_k], logical experts.
            logits: [tokens, experts].
            bias: [experts] or None.
        """
        layer = self.layers[index]
        layer.consulted += 1
        # Outside a graph the host may leave the work out; while graphs are made and warmed up it must not.
        if self.serving and self._kept >= layer.experts and not _capturing(ids):
            return weights, ids
        voters, kept = self._device_voters, self._device_kept
        if ids.is_cuda and layer.routing is not None:
            from outrider.vllm_ext.expert_budget.kernels import reroute_fused  # noqa: PLC0415 - Triton is CUDA's

            new_weights, new_ids, votes = reroute_fused(
                weights, ids, logits, bias, voters=voters, budget=kept, routing=layer.routing
            )
        else:
            votes = chosen_weight(weights, ids, voters, logits.shape[-1])
            keep = kept_experts(votes, kept)
            if layer.routing is None:
                new_weights, new_ids = drop(weights, ids, keep, votes)
            else:
                new_weights, new_ids = reroute(weights, ids, logits, bias, keep, layer.routing)
        if self.settings.report_every:
            self._counts[index, 0].copy_((votes > 0).sum())
            self._counts[index, 1].copy_(distinct(new_ids, voters, logits.shape[-1]))
        return new_weights, new_ids

    def counts(self) -> list[tuple[str, int, int]]:
        """Layer, experts that its router chose in the last budgeted step, experts that it read. Waits for the device.

        All 0 unless `report_every` is set.
        """
        return [
            (layer.name, int(chosen), int(read))
            for layer, (chosen, read) in zip(self.layers, self._counts.tolist(), strict=True)
        ]


def _capturing(tensor: Tensor) -> bool:
    return bool(tensor.is_cuda and torch.cuda.is_current_stream_capturing())
