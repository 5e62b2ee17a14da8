"""Named by `--worker-extension-cls`, so that an engine that cannot find Outrider fails instead of starting without it.

Importing this module does what the entry points do; so they need not be found, only Outrider. Each does nothing unless
its variable is set.
"""

from __future__ import annotations

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
