"""How `speculation.auto` reaches vLLM: our scheduler, its settings, and a schedule that lets every k run fast.

The scheduler and the metrics class are named by import path, so the engine's interpreter must have Outrider, which it
has in the images, in the units' virtual environment and in the embedded one.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from outrider.engine.vllm_workers import importable
from outrider.errors import StackError
from outrider.vllm_ext.settings import VARIABLE, choices

if TYPE_CHECKING:
    from outrider.stack.schema import Speculation, Stack

FLAGS = [
    "--scheduler-cls", "outrider.vllm_ext.scheduler.UtilityScheduler",
    "--middleware", "outrider.vllm_ext.metrics.UtilityMetrics",
]  # fmt: skip
# Methods whose number of drafts may change between steps on either runner (config/vllm.py, 0.33.0; preflight SPEC007).
METHODS = frozenset({"ngram", "eagle", "eagle3", "mtp", "draft_model", "dflash"})


def prior(spec: Speculation, largest_batch: int) -> list[list[int]]:
    """The schedule that the controller starts from: the stack's, else k at every batch size."""
    bands = [list(band) for band in spec.schedule or () if band[0] <= largest_batch]
    return bands or [[1, largest_batch, spec.k]]


def engine_schedule(stack: Stack, variant: str, spec: Speculation) -> list[list[int]]:
    """The schedule that the engine is started with: the prior, with every other choice at one of the largest batches.

    The V2 runner captures CUDA graphs for the k that its schedule names, and for no other; the controller puts the
    prior back before the first step.

    Raises:
        StackError: the engine could not change k here; says why.
    """
    _refuse(stack, variant, spec)
    most = stack.memory.max_num_seqs or 0
    bands = prior(spec, most)
    last, others = most, list[int]()
    while missing := [k for k in _ks(spec) if k not in {k for first, _, k in bands if first <= last} | set(others)]:
        if last == 1:
            break
        others.append(missing[0])
        last -= 1
    kept = [[first, min(end, last), k] for first, end, k in bands if first <= last]
    kept[-1][1] = last
    return kept + [[last + i, last + i, k] for i, k in enumerate(sorted(others), start=1)]


def environment(spec: Speculation, stack: Stack) -> dict[str, str]:
    """The controller's settings, and where another interpreter finds it."""
    most = stack.memory.max_num_seqs or 0
    settings = {"prior": prior(spec, most), "ks": list(_ks(spec))}
    return {VARIABLE: json.dumps(settings, separators=(",", ":"))} | importable()


def _ks(spec: Speculation) -> tuple[int, ...]:
    scheduled = {band[2] for band in spec.schedule or ()}
    return tuple(sorted({*choices(spec.k), *scheduled}))


def _refuse(stack: Stack, variant: str, spec: Speculation) -> None:
    where = f"stack {stack.name}, variants.{variant}.speculation.auto"
    if stack.parallel.data > 1:
        raise StackError(
            "k cannot be chosen at run time with data parallel ranks: different k would block them",
            evidence=f"{where}, parallel.data {stack.parallel.data}",
            next_step="set `parallel.data: 1`, or use a variant with static k",
        )
    if stack.memory.max_num_seqs is None:
        raise StackError(
            "k by batch size needs to know the largest batch",
            evidence=where,
            next_step="set `memory.max_num_seqs`",
        )
    if spec.method not in METHODS:
        raise StackError(
            f"the engine drafts the same number of tokens at every step with method {spec.method}",
            evidence=where,
            next_step=f"use one of {', '.join(sorted(METHODS))}, or drop `auto`",
        )
