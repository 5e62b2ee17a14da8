"""The prompts of a plan, as request bodies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from outrider.load.workloads import load_prompts_file, load_workload

if TYPE_CHECKING:
    from outrider.load.plan import LoadPlan
    from outrider.load.workloads import Prompt, Workload


def workload_of(plan: LoadPlan) -> Workload:
    """What the plan sends, in sending order; raises LoadError if that cannot be read."""
    if plan.workload is not None:
        return load_workload(plan.workload, seed=plan.prompt_seed, count=plan.distinct_prompts)
    assert plan.prompts_file is not None
    return load_prompts_file(plan.prompts_file, seed=plan.prompt_seed)


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
    body |= plan.extra_body
    if plan.endpoint == "chat":
        body["messages"] = list(prompt.messages)
    else:
        body["prompt"] = prompt.messages[-1]["content"]
    return orjson.dumps(body)
