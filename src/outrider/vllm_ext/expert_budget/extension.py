"""Named by `--worker-extension-cls`, so that an engine that cannot find the budget fails instead of starting without.

Importing this module does what the entry point does; so the entry point need not be found, only Outrider.
"""

from __future__ import annotations

from outrider.vllm_ext.expert_budget.plugin import register

register()


class ExpertBudgetExtension:
    """What the engine's `collective_rpc` can ask of each worker."""

    def expert_budget_counts(self) -> list[tuple[str, int, int]]:
        """Layer, experts chosen and experts read in the last budgeted step; see `Budget.counts`."""
        rows: list[tuple[str, int, int]] = self.outrider_expert_budget.counts()  # type: ignore[attr-defined]
        return rows
