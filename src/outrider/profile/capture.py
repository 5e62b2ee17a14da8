"""Takes a decode profile of a served variant: load it, let the engine record a few steps of it, load it again without.

Recording slows steps down, so where the time goes comes from the recorded round, and how long a step takes from the
other one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import httpx

from outrider.campaign.engines import Engines
from outrider.engine import adapter_of
from outrider.load import Closed, LoadPlan, run_load
from outrider.profile.errors import ProfileError
from outrider.profile.shares import StepShares, shares_of
from outrider.profile.trace import read_trace
from outrider.stack import Stack

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from outrider.load.result import LoadResult
    from outrider.runtime.base import Runtime

# Steps that pass before recording begins: prompts are read in the first ones.
_SKIPPED = 8
# Writing a trace of thousands of operators takes the engine seconds in which it answers nothing.
_WRITE_TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True)
class Captured:
    """A profile and where it was taken.

    Attributes:
        shares: where the time of a step goes; `step_s` is that of an unrecorded step.
        recorded_step_s: of a recorded step, its recording included.
        batch, context_tokens: the place.
        trace: the engine's file.
    """

    shares: StepShares
    recorded_step_s: float | None
    batch: int
    context_tokens: int
    trace: Path


def profiling_stack(stack: Stack, variant: str, directory: Path) -> Stack:
    """The stack whose variant is served with the engine's profiler on, writing into a directory.

    Raises:
        ProfileError: the stack turns the profiler on itself.
        StackError: no such variant.
    """
    flags = adapter_of(stack, variant).profiler_flags(directory)
    if doubled := [name for name in flags if name in {**stack.engine.flags, **stack.variant(variant).flags}]:
        raise ProfileError(
            f"the stack sets {doubled[0]} itself",
            evidence=stack.name,
            next_step="leave the profiler to `profile capture`",
        )
    data = stack.model_dump(mode="json", by_alias=True)
    data["variants"][variant]["flags"] = {**stack.variant(variant).flags, **flags}
    return Stack.model_validate(data)


def capture(
    stack: Stack,
    variant: str,
    directory: Path,
    runtime: Runtime,
    *,
    workload: str,
    batch: int,
    steps: int,
    max_tokens: int,
    on_step: Callable[[str], None] = lambda _text: None,
) -> Captured:
    """Serve a variant, record its decoding, and say where the time goes.

    Args:
        stack: whose variant.
        variant: what to serve.
        directory: absolute; traces are written there.
        runtime: what runs the engine.
        workload: prompts.
        batch: sequences that decode together.
        steps: to record.
        max_tokens: of each answer; must outlast the recorded steps.
        on_step: told what happens.

    Raises:
        ProfileError: the engine recorded nothing, or answers ended too early.
        OutriderError: it did not start, or the load failed.
    """
    if max_tokens < _SKIPPED + steps:
        raise ProfileError(
            f"answers of {max_tokens} tokens end before {steps} steps are recorded",
            evidence=f"{_SKIPPED} steps pass first, and each gives at least one token",
            next_step=f"give --max-tokens {2 * (_SKIPPED + steps)} or more, or fewer --steps",
        )
    directory.mkdir(parents=True, exist_ok=True)
    before = set(directory.glob("*"))
    engine = adapter_of(stack, variant)
    with Engines(profiling_stack(stack, variant, directory), runtime, side_by_side=False) as engines:
        on_step(f"starting {variant} with its profiler on")
        url = engines.get(variant).running.url
        on_step("decoding unrecorded")
        plain = run_load(_load(stack, variant, url, workload, batch, max_tokens, seed=0)).result
        on_step(f"decoding, {steps} steps recorded")
        _post(f"{url}{engine.profiler_paths[0]}", engine.profiler_request(skip=_SKIPPED, steps=steps))
        run_load(_load(stack, variant, url, workload, batch, max_tokens, seed=1))
        _post(f"{url}{engine.profiler_paths[1]}", None)
        if died := engines.death(variant):
            raise died
    files = sorted(set(directory.glob("*.pt.trace.json*")) - before)
    if not files:
        raise ProfileError(
            "the engine wrote no trace",
            evidence=f"{directory} holds {len(list(directory.glob('*')))} other files",
            next_step="read the engine's log: `outrider logs`",
        )
    # One file a rank; any of them shows a rank's step.
    shares = shares_of(read_trace(files[0]))
    return Captured(replace(shares, step_s=_step_s(plain)), shares.step_s, batch, round(_context(plain)), files[0])


def _load(stack: Stack, variant: str, url: str, workload: str, batch: int, max_tokens: int, *, seed: int) -> LoadPlan:
    return LoadPlan(
        url=url,
        model=stack.target.served_name,
        workload=workload,
        prompt_seed=seed,
        arrivals=Closed(concurrency=batch),
        requests=batch,
        warmup_requests=0,
        max_tokens=max_tokens,
        ignore_eos=True,
        extra_body=adapter_of(stack, variant).isolated_cache(f"profile/{variant}/{seed}"),
        engine=stack.engine.name,
    )


def _step_s(result: LoadResult) -> float:
    """Seconds of an unrecorded step: time per token x tokens per step."""
    tokens = (result.engine.tokens_per_step if result.engine else None) or 1.0
    if not result.tpot_s.mean:
        raise ProfileError("no answer was long enough to time a step", evidence=f"{result.tokens} tokens")
    return result.tpot_s.mean * tokens


def _context(result: LoadResult) -> float:
    return (result.prompt_tokens + result.tokens / 2) / max(result.requests, 1)


def _post(url: str, body: dict[str, object] | None) -> None:
    try:
        httpx.post(url, json=body, timeout=_WRITE_TIMEOUT_S).raise_for_status()
    except httpx.HTTPError as error:
        raise ProfileError(
            "the engine's profiler did not answer", evidence=f"{url}: {error}", next_step="read the engine's log"
        ) from error
