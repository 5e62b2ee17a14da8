"""The prompts of a plan, as request bodies."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import orjson

from outrider.errors import LoadError
from outrider.load.workloads import Prompt, load_workload

if TYPE_CHECKING:
    from pathlib import Path

    from outrider.load.plan import LoadPlan


def prompts_of(plan: LoadPlan) -> tuple[Prompt, ...]:
    """Prompts in sending order; raises LoadError if there are none."""
    if plan.workload is not None:
        return load_workload(plan.workload, seed=plan.prompt_seed).prompts
    assert plan.prompts_file is not None
    prompts = read_prompts(plan.prompts_file)
    random.Random(plan.prompt_seed).shuffle(prompts)  # noqa: S311 - order, not secrets
    return tuple(prompts)


def read_prompts(path: Path) -> list[Prompt]:
    """JSON lines, each with `messages` or `prompt`, and optionally `id`, `category`, `max_tokens`."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise LoadError(f"prompts cannot be read: {error.strerror}", evidence=str(path)) from error
    prompts = [_prompt(line, f"{path}:{n}", n) for n, line in enumerate(lines, 1) if line.strip()]
    if not prompts:
        raise LoadError("a prompts file has no prompts", evidence=str(path))
    return prompts


def _prompt(line: bytes, where: str, number: int) -> Prompt:
    try:
        row: dict[str, Any] = orjson.loads(line)
        messages = row.get("messages") or [{"role": "user", "content": row["prompt"]}]
        return Prompt(
            id=str(row.get("id", number)),
            category=str(row.get("category", "")),
            messages=tuple({"role": m["role"], "content": m["content"]} for m in messages),
            max_tokens=row.get("max_tokens"),
        )
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        raise LoadError(
            "a line of the prompts file is not a prompt",
            evidence=f"{where}: {error!r}",
            next_step='write {"messages": [{"role": "user", "content": "..."}]} or {"prompt": "..."} in each line',
        ) from error


def request_body(plan: LoadPlan, prompt: Prompt) -> bytes:
    """JSON of one streamed completion request."""
    limit = plan.max_tokens if prompt.max_tokens is None else min(plan.max_tokens, prompt.max_tokens)
    body: dict[str, Any] = {
        "model": plan.model,
        "max_tokens": limit,
        "temperature": plan.temperature,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if plan.usage == "continuous":
        body["stream_options"]["continuous_usage_stats"] = True
    if plan.seed is not None:
        body["seed"] = plan.seed
    if plan.ignore_eos:
        body["ignore_eos"] = True
    if plan.endpoint == "chat":
        body["messages"] = list(prompt.messages)
    else:
        body["prompt"] = prompt.messages[-1]["content"]
    return orjson.dumps(body)
