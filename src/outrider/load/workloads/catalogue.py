"""Workloads by name."""

from __future__ import annotations

import difflib

from outrider.errors import LoadError
from outrider.load.workloads.prompt import Workload, assemble
from outrider.load.workloads.written import SETS, read_set, written_prompts


def workload_names() -> tuple[str, ...]:
    """Every name that `load_workload` takes."""
    return tuple(sorted(SETS))


def load_workload(name: str, *, seed: int = 0, count: int | None = None) -> Workload:
    """Build one of Outrider's own workloads.

    Args:
        name: one of `workload_names()`.
        seed: decides the order and every drawn parameter; same seed, same workload, byte for byte.
        count: how many prompts; None for the whole set. A smaller count is a prefix of a larger one.

    Raises:
        LoadError: unknown name, or more prompts asked than the set has.
    """
    if name in SETS:
        data = read_set(name)
        return assemble(
            name, data["version"], data["description"], written_prompts(name, data), seed=seed, count=count
        )
    close = difflib.get_close_matches(name, workload_names(), n=1)
    raise LoadError(
        f"there is no workload {name!r}",
        evidence=f"known: {', '.join(workload_names())}",
        next_step=f"did you mean {close[0]!r}?" if close else "take one of these, or load a file of prompts",
    )
