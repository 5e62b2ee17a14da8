"""vLLM's metric names by version, and the reading of its Prometheus text."""

from __future__ import annotations

from outrider.engine import exposition
from outrider.engine.base import EngineScrape, SpecCounters
from outrider.engine.exposition import Samples

# Figure -> its names, newest first, each with the first version that had it. Counters are named as the
# parser reports samples, with `_total`.
NAMES: dict[str, tuple[tuple[str, str], ...]] = {
    "generation_tokens": (("0.6", "vllm:generation_tokens_total"),),
    "prompt_tokens": (("0.6", "vllm:prompt_tokens_total"),),
    "finished": (("0.6", "vllm:request_success_total"),),
    "preemptions": (("0.6", "vllm:num_preemptions_total"),),
    "prefix_queries": (("0.8", "vllm:prefix_cache_queries_total"),),
    "prefix_hits": (("0.8", "vllm:prefix_cache_hits_total"),),
    "running": (("0.6", "vllm:num_requests_running"),),
    "waiting": (("0.6", "vllm:num_requests_waiting"),),
    "kv_cache_usage": (("0.10", "vllm:kv_cache_usage_perc"), ("0.6", "vllm:gpu_cache_usage_perc")),
    "start_time": (("0.6", "process_start_time_seconds"),),
    "drafts": (("0.9", "vllm:spec_decode_num_drafts_total"),),
    "draft_tokens": (("0.6", "vllm:spec_decode_num_draft_tokens_total"),),
    "accepted_tokens": (("0.6", "vllm:spec_decode_num_accepted_tokens_total"),),
    "accepted_per_pos": (("0.9", "vllm:spec_decode_num_accepted_tokens_per_pos_total"),),
    "ttft": (("0.6", "vllm:time_to_first_token_seconds"),),
    "tpot": (("0.9", "vllm:request_time_per_output_token_seconds"),),
    # Per streamed output, not per token; 0.13 removed the old name, which said otherwise.
    "itl": (("0.12", "vllm:inter_token_latency_seconds"), ("0.6", "vllm:time_per_output_token_seconds")),
    "e2e": (("0.6", "vllm:e2e_request_latency_seconds"),),
}
# Bounds of the histogram behind `tpot` (0.13 to 0.33), in seconds.
TPOT_BOUNDS_S = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)


def names_for(version: str) -> dict[str, str]:
    """The metric name of each figure in one engine version (`"0.32.0"`)."""
    return exposition.names_for(NAMES, version)


def query(figure: str, by: str, window: str) -> str | None:
    """PromQL of a figure; see `EngineAdapter.metrics_query`."""
    if figure == "first_tokens":  # the first token of each request is what TTFT observes
        return exposition.generic_query(NAMES, "ttft_count", by, window)
    return exposition.generic_query(NAMES, figure, by, window)


def read(text: str) -> EngineScrape:
    """Read one exposition, summed over engine cores; see `EngineScrape` for what is None.

    Raises:
        EngineError: the text is no Prometheus exposition, or has no vLLM metric.
    """
    samples = Samples(text, NAMES)
    samples.require("vllm:", "vLLM", "vLLM hides its metrics with --disable-log-stats")
    ttft = samples.histogram("ttft")
    return EngineScrape(
        generation_tokens=samples.total("generation_tokens"),
        prompt_tokens=samples.total("prompt_tokens"),
        first_tokens=ttft.count if ttft else None,
        finished=samples.by("finished", "finished_reason"),
        preemptions=samples.total("preemptions"),
        prefix_queries=samples.total("prefix_queries"),
        prefix_hits=samples.total("prefix_hits"),
        running=samples.total("running"),
        waiting=samples.total("waiting"),
        kv_cache_usage=samples.mean("kv_cache_usage"),
        start_time=samples.total("start_time"),
        spec=_speculation(samples),
        ttft=ttft,
        tpot=samples.histogram("tpot"),
        itl=samples.histogram("itl"),
        e2e=samples.histogram("e2e"),
    )


def _speculation(samples: Samples) -> SpecCounters | None:
    # Created at start-up when the variant speculates, zero until the first draft; absent otherwise.
    drafts = samples.total("drafts")
    if drafts is None:
        return None
    positions = {int(label): value for label, value in samples.by("accepted_per_pos", "position").items()}
    return SpecCounters(
        drafts=drafts,
        draft_tokens=samples.total("draft_tokens") or 0.0,
        accepted_tokens=samples.total("accepted_tokens") or 0.0,
        accepted_per_pos=tuple(positions.get(i, 0.0) for i in range(max(positions, default=-1) + 1)),
    )
