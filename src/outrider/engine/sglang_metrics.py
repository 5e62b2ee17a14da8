"""SGLang's metric names by version, and the reading of its Prometheus text.

Read from 0.5.23 (`srt/observability/metrics_collector.py`). Token counters and the count of verification steps grow
when a request ends, not while it runs. There is no counter of accepted tokens: each step of a request yields one token
of the target and the accepted ones, and the first token comes from the prefill, so that over finished requests

    accepted = generated - requests - verification steps

Acceptance by position is not published.
"""

from __future__ import annotations

from outrider.engine import exposition
from outrider.engine.base import EngineScrape, SpecCounters
from outrider.engine.exposition import Samples, rate_sum

NAMES: dict[str, tuple[tuple[str, str], ...]] = {
    "generation_tokens": (("0.3", "sglang:generation_tokens_total"),),
    "prompt_tokens": (("0.3", "sglang:prompt_tokens_total"),),
    "finished": (("0.4", "sglang:num_requests_total"),),
    "preemptions": (("0.5", "sglang:num_retracted_requests_total"),),
    "prefix_hits": (("0.4", "sglang:cached_tokens_total"),),
    "running": (("0.3", "sglang:num_running_reqs"),),
    "waiting": (("0.3", "sglang:num_queue_reqs"),),
    "kv_cache_usage": (("0.3", "sglang:token_usage"),),
    "drafts": (("0.5", "sglang:spec_verify_calls_total"),),
    # A gauge: tokens that one step verifies, the target's own among them.
    "verified_a_step": (("0.5", "sglang:spec_num_draft_tokens"),),
    "ttft": (("0.3", "sglang:time_to_first_token_seconds"),),
    "tpot": (("0.5", "sglang:request_time_per_output_token_seconds"),),
    # Per token: SGLang divides the time between outputs by their tokens.
    "itl": (("0.4", "sglang:inter_token_latency_seconds"),),
    "e2e": (("0.3", "sglang:e2e_request_latency_seconds"),),
}
# Bounds of the histogram behind `tpot`, in seconds.
TPOT_BOUNDS_S = (
    *(0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.06, 0.08),
    *(0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0),
)


def query(figure: str, by: str, window: str) -> str | None:
    """PromQL of a figure; see `EngineAdapter.metrics_query`."""
    if figure in {"accepted_per_pos", "start_time"}:
        return None

    def rate(name: str) -> str:
        return rate_sum(NAMES[name][0][1], by, window)

    def over_ranks(name: str) -> str:
        # Ranks of one tensor-parallel group report the same requests; data-parallel ranks have their own.
        return f"sum by ({by}) (max by (instance, dp_rank, {by}) ({NAMES[name][0][1]}))"

    verified = f"max by ({by}) ({NAMES['verified_a_step'][0][1]})"
    derived = {
        "first_tokens": rate("finished"),  # of finished requests, as the token counter is
        "prefix_queries": rate("prompt_tokens"),
        "accepted_tokens": f"clamp_min({rate('generation_tokens')} - {rate('finished')} - {rate('drafts')}, 0)",
        "draft_tokens": f"{rate('drafts')} * on ({by}) clamp_min({verified} - 1, 0)",
        "running": over_ranks("running"),
        "waiting": over_ranks("waiting"),
    }
    return derived.get(figure) or exposition.generic_query(NAMES, figure, by, window)


def read(text: str) -> EngineScrape:
    """Read one exposition; see `EngineScrape` for what is None.

    Raises:
        EngineError: the text is no Prometheus exposition, or has no SGLang metric.
    """
    samples = Samples(text, NAMES)
    samples.require("sglang:", "SGLang", "SGLang publishes metrics with --enable-metrics only")
    generated, finished = samples.total("generation_tokens"), samples.total("finished")
    return EngineScrape(
        generation_tokens=generated,
        prompt_tokens=samples.total("prompt_tokens"),
        first_tokens=finished,
        finished={} if finished is None else {"": finished},
        preemptions=samples.total("preemptions"),
        prefix_queries=samples.total("prompt_tokens"),
        prefix_hits=samples.total("prefix_hits"),
        running=_over_ranks(samples, "running"),
        waiting=_over_ranks(samples, "waiting"),
        kv_cache_usage=samples.mean("kv_cache_usage"),
        spec=_speculation(samples, generated, finished),
        ttft=samples.histogram("ttft"),
        tpot=samples.histogram("tpot"),
        itl=samples.histogram("itl"),
        e2e=samples.histogram("e2e"),
    )


def _speculation(samples: Samples, generated: float | None, finished: float | None) -> SpecCounters | None:
    # The counter appears with the first finished request that was verified; the gauge is there before, 0 if off.
    steps, verified = samples.total("drafts"), samples.mean("verified_a_step") or 0.0
    if steps is None and not verified:
        return None
    steps = steps or 0.0
    accepted = max((generated or 0.0) - (finished or 0.0) - steps, 0.0) if steps else 0.0
    return SpecCounters(drafts=steps, draft_tokens=steps * max(verified - 1, 0.0), accepted_tokens=accepted)


def _over_ranks(samples: Samples, figure: str) -> float | None:
    by_rank: dict[str, float] = {}
    for labels, value in samples.of(figure):
        rank = labels.get("dp_rank", "")
        by_rank[rank] = max(by_rank.get(rank, 0.0), value)
    return sum(by_rank.values()) if by_rank else None
