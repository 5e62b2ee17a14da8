"""The name tables: which kernel belongs to which part of a step."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources

import yaml

UNKNOWN = "unknown"


@cache
def _table() -> dict[str, list[str]]:
    text = resources.files("outrider.profile").joinpath("kernels.yaml").read_text(encoding="utf-8")
    table: dict[str, list[str]] = yaml.safe_load(text)
    return table


def classes() -> tuple[str, ...]:
    """Names of the classes, in the order in which they are tried."""
    return tuple(name for name in _table() if name != "steps")


def step_patterns() -> tuple[str, ...]:
    """Patterns of step markers, the best first."""
    return tuple(_table()["steps"])


@cache
def classify(name: str) -> str:
    """The class of a kernel or operator; `unknown` if no pattern is found in its name."""
    for group in classes():
        if any(re.search(pattern, name, re.IGNORECASE) for pattern in _table()[group]):
            return group
    return UNKNOWN
