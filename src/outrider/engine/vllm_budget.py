"""How a variant's `expert_budget` reaches vLLM: settings in the environment, beside the class of `vllm_workers`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from outrider.engine.vllm_workers import importable
from outrider.vllm_ext.expert_budget.settings import VARIABLE, Settings

if TYPE_CHECKING:
    from outrider.stack.schema import ExpertBudget


def settings(budget: ExpertBudget) -> Settings:
    """As the plugin reads them."""
    return Settings(experts=budget.experts, share=budget.share, mode=budget.mode)


def environment(budget: ExpertBudget) -> dict[str, str]:
    """The plugin's settings, and where another interpreter finds it."""
    return {VARIABLE: json.dumps(budget.model_dump(exclude_none=True), separators=(",", ":"))} | importable()
