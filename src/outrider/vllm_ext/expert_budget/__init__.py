"""An upper bound on the experts that one decode step reads in a layer. Lossy: it changes what the target answers.

An engine plugin, named `outrider_expert_budget` in the group `vllm.general_plugins`. Nothing here is imported or
patched unless OUTRIDER_EXPERT_BUDGET is set. Why it is built as it is: docs/decisions/0003-expert-budget.md.
"""
