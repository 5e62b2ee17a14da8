"""Which engine steps are decode or verify steps and nothing else, from what the scheduler hands to the workers.

The decision is the scheduler's own view, not the shape of the batch: a prompt whose last token alone is left (a hit of
the prefix cache) has the shape of a decode step and may run in its graph, but is prefill.
"""

from __future__ import annotations

from typing import Any


class Steps:
    """Knows how many tokens each live request had when it came, or came back: below that it is prefilled."""

    def __init__(self) -> None:
        """No request yet."""
        self._came: dict[str, int] = {}
        self._known: dict[str, int] = {}

    def decoding(self, scheduled: Any) -> int | None:
        """Take in a step.

        Args:
            scheduled: the engine's SchedulerOutput.

        Returns:
            Tokens of the step if every one of them is decoded or verified, else None.
        """
        known = self._known
        for request in scheduled.finished_req_ids:
            known.pop(request, None)
            self._came.pop(request, None)
        for new in scheduled.scheduled_new_reqs:
            known[new.req_id] = self._came[new.req_id] = _tokens_at_start(new)
        cached = scheduled.scheduled_cached_reqs
        prefills = bool(scheduled.scheduled_new_reqs)
        for request, computed, output in zip(
            cached.req_ids, cached.num_computed_tokens, cached.num_output_tokens, strict=True
        ):
            if request in cached.resumed_req_ids:
                # Preempted: what it had answered is computed again, like a prompt.
                known[request] = self._came.get(request, 0) + output
            # A request that nothing is known of is taken for prefill.
            prefills |= request not in known or computed < known[request]
        tokens: int = scheduled.total_num_scheduled_tokens
        return None if prefills or tokens == 0 else tokens


def _tokens_at_start(new: Any) -> int:
    # The V2 runner is told of a resumed request as of a new one, with all its tokens.
    if new.prefill_token_ids is not None:
        return len(new.prefill_token_ids)
    return int(new.prompt_len)
