"""Passes of the V2 model runner's speculator: what is kept of one, and how one over several steps is run.

The runner keeps block tables by a request's slot, so that a pass finds its blocks as long as the request has its slot:
until the next step in which other requests take part.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from outrider.vllm_ext.deferred_pass.policy import Deferred

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class _Inputs:
    """Of one step, one row a request; copies.

    Each is one kernel: at small batches a step waits for the CPU that starts them.

    Attributes:
        tokens: what follows each position, shape [requests].
        hidden: the target's hidden states there, of all layers that the drafter reads, shape [requests, width].
    """

    tokens: torch.Tensor
    hidden: torch.Tensor


@dataclass(frozen=True, slots=True)
class _First:
    """Of the first step put off; those after it are of the same requests, each one position further.

    Attributes:
        positions: shape [requests].
        slots: of the requests in the runner's tables, shape [requests].
        longest: an upper bound of each request's length, on the CPU, shape [requests].
    """

    positions: torch.Tensor
    slots: torch.Tensor
    longest: torch.Tensor


class SpeculatorPasses(Deferred[_Inputs]):
    """Takes the place of a speculator's `propose`.

    Args:
        speculator: the engine's, whose buffers and model a pass uses.
        propose: the engine's own, bound to it.
        lane: context manager under which the runner runs its drafter.
        most_steps: passes put off at most.
        most_tokens: tokens of one pass at most.
    """

    def __init__(
        self,
        speculator: Any,
        propose: Callable[..., Any],
        lane: Callable[[], Any],
        *,
        most_steps: int,
        most_tokens: int,
    ) -> None:
        super().__init__(most_steps=most_steps, most_tokens=most_tokens)
        self._speculator, self._propose, self._lane = speculator, propose, lane
        # A pass's places in the cache: the engine's own buffer holds those of its step.
        self._places: torch.Tensor | None = None
        # What a step without drafts answers with.
        self._no_drafts: torch.Tensor | None = None
        self._first: _First | None = None
        self._combines = False

    def __call__(  # noqa: PLR0913 - the engine's own signature
        self,
        input_batch: Any,
        attn_metadata: Any,
        slot_mappings: Any,
        last_hidden_states: Any,
        aux_hidden_states: Any,
        num_sampled: Any,
        num_rejected: Any,
        last_sampled: Any,
        *rest: Any,
        num_speculative_tokens: int | None = None,
        dummy_run: bool = False,
        **more: Any,
    ) -> Any:
        """As the engine calls `propose`; without drafts all of them are -1, shape [requests, largest k]."""
        requests = list(input_batch.req_ids)
        # There are none while the engine measures how much memory is left for a cache. Blocks that have left a sliding
        # window are hidden from the tables that the engine makes, not from ours.
        tables = getattr(self._speculator, "block_tables", None)
        ready = not dummy_run and tables is not None and not getattr(tables, "has_sliding_window_groups", False)
        plain = ready and num_speculative_tokens == 0 and _is_plain_decode(input_batch)
        before = self.made_up
        if not self.takes(requests, plain=plain):
            if self.made_up > before:
                # The pass that made up has put its own requests' blocks where the engine had those of this step.
                self._speculator.block_tables.gather_block_tables(
                    input_batch.idx_mapping, num_reqs_padded=input_batch.num_reqs_after_padding
                )
            return self._propose(
                input_batch, attn_metadata, slot_mappings, last_hidden_states, aux_hidden_states, num_sampled,
                num_rejected, last_sampled, *rest, num_speculative_tokens=num_speculative_tokens, dummy_run=dummy_run,
                **more,
            )  # fmt: skip
        count = len(requests)
        if not self._steps:
            self._first = _First(
                input_batch.positions[:count].clone(),
                input_batch.idx_mapping[:count].clone(),
                input_batch.seq_lens_cpu_upper_bound[:count].clone(),
            )
        assert self._first is not None
        self._combines = bool(aux_hidden_states)
        states = [one[:count] for one in aux_hidden_states or (last_hidden_states,)]
        hidden = torch.cat(states, dim=-1) if len(states) > 1 else states[0].clone()
        self.keep(_Inputs(last_sampled.flatten()[self._first.slots], hidden))
        if self._no_drafts is None:
            self._no_drafts = torch.full_like(self._speculator.draft_tokens, -1)
        return self._no_drafts[:count]

    def run(self, steps: list[_Inputs], requests: list[str]) -> None:
        """The engine's pass, over all steps of each request, without drafting."""
        # The engine is there when this runs, and only then.
        from vllm.config.compilation import CUDAGraphMode  # noqa: PLC0415
        from vllm.v1.worker.gpu.attn_utils import build_slot_mappings_by_layer  # noqa: PLC0415
        from vllm.v1.worker.gpu.cudagraph_utils import BatchExecutionDescriptor  # noqa: PLC0415

        speculator, first = self._speculator, self._first
        assert first is not None
        longest = first.longest + (len(steps) - 1)
        count, rows = len(requests), len(requests) * len(steps)
        with torch.inference_mode(), self._lane():
            places = self._lay_out(steps, first, count, rows)
            speculator.draft_max_seq_len = min(int(longest.max()), speculator.max_model_len)
            metadata = speculator._build_attn_metadata(  # noqa: SLF001 - as the engine's own subclasses do
                num_reqs=count,
                batch_desc=BatchExecutionDescriptor(CUDAGraphMode.NONE, rows, count),
                query_start_loc_np=np.arange(count + 1, dtype=np.int32) * len(steps),
                seq_lens_cpu_upper_bound=longest,
                step=0,
                slot_mappings=places,
            )
            by_layer = build_slot_mappings_by_layer(places, speculator.kv_cache_config)
            speculator._run_model(rows, metadata, by_layer, None)  # noqa: SLF001

    def _lay_out(self, steps: list[_Inputs], first: _First, count: int, rows: int) -> torch.Tensor:
        """Fill the speculator's buffers, a request after the other, and say where in the cache each row belongs."""
        speculator, slots = self._speculator, first.slots
        buffers, tables = speculator.input_buffers, speculator.block_tables

        def by_request(name: str) -> torch.Tensor:
            return torch.stack([getattr(step, name) for step in steps], dim=1).flatten(0, 1)

        hidden = by_request("hidden")
        speculator.hidden_states[:rows] = speculator.model.combine_hidden_states(hidden) if self._combines else hidden
        buffers.input_ids[:rows] = by_request("tokens")
        onwards = torch.arange(len(steps), dtype=first.positions.dtype, device=first.positions.device)
        buffers.positions[:rows] = (first.positions[:, None] + onwards).flatten()
        buffers.seq_lens[:count] = first.positions + len(steps)
        starts = buffers.query_start_loc[: count + 1]
        torch.arange(0, rows + 1, len(steps), dtype=starts.dtype, device=starts.device, out=starts)
        tables.gather_block_tables(slots, num_reqs_padded=count)
        if self._places is None:
            groups = tables.slot_mappings.shape[0]
            self._places = tables.slot_mappings.new_empty(groups, self._most_tokens)
        places: torch.Tensor = tables.compute_slot_mappings(
            slots, starts, buffers.positions[:rows], rows, out=self._places
        )
        return places


def _is_plain_decode(input_batch: Any) -> bool:
    """One new token a request, so no draft was verified, and no prompt is read."""
    return bool(
        input_batch.num_reqs > 0
        and not input_batch.has_prefill
        and input_batch.num_draft_tokens == 0
        and input_batch.num_tokens == input_batch.num_reqs
    )
