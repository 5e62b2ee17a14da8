"""Passes of the V1 model runner's proposer: what is kept of one, and how one over several steps is run."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from outrider.vllm_ext.deferred_pass.policy import Deferred

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# What the engine derives from the other fields, and keeps.
_DERIVED = ("_num_computed_tokens_cache", "_token_to_req_indices_cache")


@dataclass(frozen=True, slots=True)
class _Inputs:
    """Of one step, one row a request; all of them copies.

    Attributes:
        tokens: the token at each position, shape [requests].
        positions: shape [requests].
        hidden: the target's hidden states there, shape [requests, width].
        slots: where the drafter's cache keeps them, shape [requests].
    """

    tokens: torch.Tensor
    positions: torch.Tensor
    hidden: torch.Tensor
    slots: torch.Tensor


class DeferredPasses(Deferred[_Inputs]):
    """Takes the place of a proposer's `propose`.

    Args:
        propose: the engine's own, bound to its proposer.
        requests: ids of the requests in the runner's batch, in order.
        most_steps: passes put off at most.
        most_tokens: tokens of one pass at most.
    """

    def __init__(
        self, propose: Callable[..., Any], requests: Callable[[], Sequence[str]], *, most_steps: int, most_tokens: int
    ) -> None:
        super().__init__(most_steps=most_steps, most_tokens=most_tokens)
        self._propose, self._requests = propose, requests
        self._last: dict[str, Any] = {}

    def __call__(self, *, num_speculative_tokens: int, **inputs: Any) -> Any:
        """As the engine calls `propose`; without drafts an empty tensor of shape [requests, 0]."""
        requests = list(self._requests())
        if not self.takes(requests, plain=not num_speculative_tokens and _is_plain_decode(inputs, len(requests))):
            return self._propose(num_speculative_tokens=num_speculative_tokens, **inputs)
        self._put_off(requests, inputs)
        next_tokens = inputs["next_token_ids"]
        return torch.empty(len(requests), 0, device=next_tokens.device, dtype=torch.int64)

    def run(self, steps: list[_Inputs], requests: list[str]) -> None:
        """The engine's pass, over all steps of each request."""
        last, self._last = self._last, {}
        count = len(steps)

        def by_request(name: str) -> torch.Tensor:
            return torch.stack([getattr(step, name) for step in steps], dim=1).flatten(0, 1)

        was = last["common_attn_metadata"]
        starts = torch.arange(len(requests) + 1, dtype=was.query_start_loc_cpu.dtype) * count
        metadata = replace(
            was,
            query_start_loc=starts.to(was.query_start_loc.device, was.query_start_loc.dtype),
            query_start_loc_cpu=starts,
            num_actual_tokens=len(requests) * count,
            max_query_len=count,
            slot_mapping=by_request("slots"),
            positions=None if was.positions is None else by_request("positions"),
            **dict.fromkeys(_DERIVED),
        )
        self._propose(
            **last
            | {
                "num_speculative_tokens": 0,
                "num_rejected_tokens_gpu": None,
                "token_indices_to_sample": None,
                "target_token_ids": by_request("tokens"),
                "target_positions": by_request("positions"),
                "target_hidden_states": by_request("hidden"),
                "common_attn_metadata": metadata,
            }
        )

    def _put_off(self, requests: list[str], inputs: dict[str, Any]) -> None:
        # The engine writes the next step into the same buffers.
        metadata = inputs["common_attn_metadata"]
        values = {one.name: getattr(metadata, one.name) for one in fields(metadata)}
        kept = {name: value.clone() for name, value in values.items() if isinstance(value, torch.Tensor)}
        kept |= {name: value.copy() for name, value in values.items() if isinstance(value, np.ndarray)}
        self._last = inputs | {
            "common_attn_metadata": replace(metadata, **kept),
            "next_token_ids": inputs["next_token_ids"].clone(),
        }
        self.keep(
            _Inputs(
                inputs["target_token_ids"].clone(),
                inputs["target_positions"].clone(),
                inputs["target_hidden_states"].clone(),
                metadata.slot_mapping[: len(requests)].clone(),
            )
        )


def _is_plain_decode(inputs: dict[str, Any], requests: int) -> bool:
    """One new token a request, so no draft was verified; and nothing that this module does not know."""
    metadata = inputs["common_attn_metadata"]
    return (
        requests > 0
        and inputs.get("mm_embed_inputs") is None
        and metadata.num_reqs == requests == metadata.num_actual_tokens
        and inputs["target_token_ids"].shape == inputs["target_positions"].shape == (requests,)
    )
