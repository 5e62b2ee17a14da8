"""Stacks: a target on a node with its variants, declared once in YAML and read by everything else."""

from outrider.stack.loader import find_stack, list_stacks, load_stack, stack_from_text
from outrider.stack.schema import (
    Campaign,
    Drafter,
    Engine,
    ExpertBudget,
    Memory,
    Node,
    Parallel,
    Speculation,
    Stack,
    Target,
    Training,
    Variant,
    WeightSource,
)

__all__ = [
    "Campaign",
    "Drafter",
    "Engine",
    "ExpertBudget",
    "Memory",
    "Node",
    "Parallel",
    "Speculation",
    "Stack",
    "Target",
    "Training",
    "Variant",
    "WeightSource",
    "find_stack",
    "list_stacks",
    "load_stack",
    "stack_from_text",
]
