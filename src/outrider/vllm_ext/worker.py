"""Named by `--worker-extension-cls`, so that an engine that cannot find Outrider fails instead of starting without it.

Importing this module does what the entry points do; so they need not be found, only Outrider. Each does nothing unless
its variable is set.
"""

from __future__ import annotations

import json

from outrider.vllm_ext.deferred_pass.plugin import register as defer_passes
from outrider.vllm_ext.expert_budget.plugin import register as bound_experts

bound_experts()
defer_passes()


class WorkerExtension:
    """What the engine's `collective_rpc` can ask of each worker."""

    def expert_budget_counts(self) -> list[tuple[str, int, int]]:
        """Layer, experts chosen and experts read in the last budgeted step; see `Budget.counts`."""
        rows: list[tuple[str, int, int]] = self.outrider_expert_budget.counts()  # type: ignore[attr-defined]
        return rows

    def deferred_pass_counts(self) -> tuple[int, int]:
        """Passes of the drafter put off so far, and passes that made up for them."""
        passes = self.outrider_deferred_passes  # type: ignore[attr-defined]
        return passes.put_off, passes.made_up

    def accept_synthetically(self, rates: str) -> None:
        """Change what is accepted while the engine serves, as if other traffic had come.

        Args:
            rates: JSON list, by position the share of drafts that are accepted up to there, none larger than the one
                before; at least as many as the engine drafts, further ones are left out.

        Raises:
            ValueError: the engine does not accept synthetically, or the rates are none or too few.
        """
        sampler = getattr(self.model_runner, "rejection_sampler", None)  # type: ignore[attr-defined]
        kept = getattr(sampler, "synthetic_conditional_rates", None)
        if kept is None:
            raise ValueError("this engine's rejection_sample_method is not synthetic")
        wanted = json.loads(rates)
        if len(wanted) < len(kept):
            raise ValueError(f"{len(wanted)} rates for {len(kept)} positions")
        if any(not 0 <= now <= before for before, now in zip([1.0, *wanted], wanted, strict=False)):
            raise ValueError(f"rates {wanted}: none may be larger than the one before")
        for position, (before, now) in enumerate(zip([1.0, *wanted], wanted[: len(kept)], strict=False)):
            # In place: a graph may have captured the tensor. The engine keeps them given that the one before was.
            kept[position] = now / before if before else 0.0
