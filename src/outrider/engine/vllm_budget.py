"""How a variant's `expert_budget` reaches vLLM: settings in the environment, and a class that makes it load the plugin.

Importing the class named by `--worker-extension-cls` puts the budget in place, so an engine whose interpreter does not
have Outrider fails at start; by the plugin's entry point alone it would serve without a budget, and say nothing.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from outrider.engine.vllm_utility import importable
from outrider.vllm_ext.expert_budget.settings import EXTENSION, VARIABLE, Settings

if TYPE_CHECKING:
    from outrider.stack.schema import ExpertBudget

FLAGS = ["--worker-extension-cls", EXTENSION]


def settings(budget: ExpertBudget) -> Settings:
    """As the plugin reads them."""
    return Settings(experts=budget.experts, share=budget.share, mode=budget.mode)


def environment(budget: ExpertBudget) -> dict[str, str]:
    """The plugin's settings, and where another interpreter finds it."""
    return {VARIABLE: json.dumps(budget.model_dump(exclude_none=True), separators=(",", ":"))} | importable()
