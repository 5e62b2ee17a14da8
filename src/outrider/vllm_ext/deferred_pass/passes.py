"""What is kept of the passes put off, and when they are made up for. Knows the proposer of the V1 model runner only."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

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


class DeferredPasses:
    """Takes the place of a proposer's `propose`.

    A pass is put off if nothing is to be drafted and each request has one new token: a plain decode step. It is made up
    for before anything could read or replace what it writes: before the next step that drafts or holds a prefill,
    before a step of other requests than the last one's, whose blocks may have been given away by then, and at latest
    after so many steps. Where not even two steps fit into a pass, none is put off. What is written then is what the
    engine would have written step by step.

    Args:
        propose: the engine's own, bound to its proposer.
        requests: ids of the requests in the runner's batch, in order.
        most_steps: passes put off at most.
        most_tokens: tokens of one pass at most.
    """

    def __init__(
        self, propose: Callable[..., Any], requests: Callable[[], Sequence[str]], *, most_steps: int, most_tokens: int
    ) -> None:
        self._propose, self._requests = propose, requests
        self._most_steps, self._most_tokens = most_steps, most_tokens
        self._steps: list[_Inputs] = []
        self._of: list[str] = []
        self._last: dict[str, Any] = {}
        self.put_off = 0
        self.made_up = 0

    def __call__(self, *, num_speculative_tokens: int, **inputs: Any) -> Any:
        """As the engine calls `propose`; without drafts an empty tensor of shape [requests, 0]."""
        requests = list(self._requests())
        room = 2 * len(requests) <= self._most_tokens
        if num_speculative_tokens or not room or not _is_plain_decode(inputs, len(requests)):
            self.catch_up()
            return self._propose(num_speculative_tokens=num_speculative_tokens, **inputs)
        if requests != self._of:
            self.catch_up()
        self._put_off(requests, inputs)
        if len(self._steps) >= self._most_steps or (len(self._steps) + 1) * len(requests) > self._most_tokens:
            self.catch_up()
        next_tokens = inputs["next_token_ids"]
        return torch.empty(len(requests), 0, device=next_tokens.device, dtype=torch.int64)

    def catch_up(self) -> None:
        """Run the passes put off as one: of each request, the tokens of these steps one after the other."""
        steps, requests, last = self._steps, len(self._of), self._last
        if not steps:
            return
        self._steps, self._of, self._last = [], [], {}
        count = len(steps)

        def by_request(name: str) -> torch.Tensor:
            return torch.stack([getattr(step, name) for step in steps], dim=1).flatten(0, 1)

        was = last["common_attn_metadata"]
        starts = torch.arange(requests + 1, dtype=was.query_start_loc_cpu.dtype) * count
        metadata = replace(
            was,
            query_start_loc=starts.to(was.query_start_loc.device, was.query_start_loc.dtype),
            query_start_loc_cpu=starts,
            num_actual_tokens=requests * count,
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
        self.made_up += 1

    def forget(self) -> None:
        """Give up what was put off: the drafter will not know these tokens, and its drafts are refused more often."""
        self._steps, self._of, self._last = [], [], {}

    def _put_off(self, requests: list[str], inputs: dict[str, Any]) -> None:
        # The engine writes the next step into the same buffers.
        metadata = inputs["common_attn_metadata"]
        self._steps.append(
            _Inputs(
                inputs["target_token_ids"].clone(),
                inputs["target_positions"].clone(),
                inputs["target_hidden_states"].clone(),
                metadata.slot_mapping[: len(requests)].clone(),
            )
        )
        values = {one.name: getattr(metadata, one.name) for one in fields(metadata)}
        kept = {name: value.clone() for name, value in values.items() if isinstance(value, torch.Tensor)}
        kept |= {name: value.copy() for name, value in values.items() if isinstance(value, np.ndarray)}
        self._of = requests
        self._last = inputs | {
            "common_attn_metadata": replace(metadata, **kept),
            "next_token_ids": inputs["next_token_ids"].clone(),
        }
        self.put_off += 1


def _is_plain_decode(inputs: dict[str, Any], requests: int) -> bool:
    """One new token a request, so no draft was verified; and nothing that this module does not know."""
    metadata = inputs["common_attn_metadata"]
    return (
        requests > 0
        and inputs.get("mm_embed_inputs") is None
        and metadata.num_reqs == requests == metadata.num_actual_tokens
        and inputs["target_token_ids"].shape == inputs["target_positions"].shape == (requests,)
    )
