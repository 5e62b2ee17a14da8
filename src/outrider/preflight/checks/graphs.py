"""Whether every decode step has a CUDA graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outrider.preflight.facts.graphs import captured, covering_size, largest_decode_step
from outrider.preflight.report import Finding, found

if TYPE_CHECKING:
    from outrider.preflight.checks.case import Case
    from outrider.preflight.facts.graphs import Captured, DecodeStep


def check_graphs(case: Case) -> list[Finding]:
    """A finding if the variant's largest decode step has more tokens than the largest graph; CUDA only."""
    engine, stack = case.stack.engine, case.stack
    if engine.name != "vllm" or engine.build != "cuda":
        return []
    requests = stack.memory.max_num_seqs or max(stack.campaign.concurrency)
    step = largest_decode_step(requests, case.spec)
    graphs = captured(stack, case.flags, step)
    if graphs is None or step.tokens <= graphs.largest:
        return []
    if graphs.batched_tokens is not None and graphs.batched_tokens <= step.k:
        return []  # not one request can be scheduled, which is SPEC018
    fits = graphs.largest // (step.k + 1)
    eager = f"steps of more than {fits} requests run eagerly" if fits else "every step runs eagerly"
    evidence = (
        f"{step.requests} requests x {step.k + 1} tokens are {step.tokens} a step, the largest graph holds "
        f"{graphs.largest} ({graphs.why}): {eager}"
    )
    return [found("GRAPH001", case.place("flags.compilation-config"), evidence, fix=_fix(graphs, step))]


def _fix(graphs: Captured, step: DecodeStep) -> str:
    size = covering_size(step)
    if graphs.listed:
        advice = f"Add sizes up to {size} to cudagraph_capture_sizes, multiples of {step.k + 1}"
    else:
        advice = f"Set flag compilation-config: {{max_cudagraph_capture_size: {size}}}, beside what it holds already"
    if graphs.batched_tokens is not None and graphs.batched_tokens < size:
        advice += f", and flag max-num-batched-tokens to {size} or more"
    fits = graphs.largest // (step.k + 1)
    return f"{advice}; or set `memory.max_num_seqs` to {fits}." if fits else f"{advice}."
