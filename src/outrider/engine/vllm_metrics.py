"""vLLM's metric names by version, and the reading of its Prometheus text."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING

from prometheus_client.parser import text_string_to_metric_families

from outrider.engine.base import EngineScrape, Histogram, SpecCounters
from outrider.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Iterable

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


def names_for(version: str) -> dict[str, str]:
    """The metric name of each figure in one engine version (`"0.32.0"`)."""
    wanted = _numbers(version)
    return {
        figure: next((name for since, name in history if _numbers(since) <= wanted), history[0][1])
        for figure, history in NAMES.items()
    }


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:3] if part.isdigit())


class _Samples:
    """All samples of an exposition by name, as (labels, value) pairs."""

    def __init__(self, text: str) -> None:
        self._by_name: defaultdict[str, list[tuple[dict[str, str], float]]] = defaultdict(list)
        try:
            for family in text_string_to_metric_families(text):
                for sample in family.samples:
                    self._by_name[sample.name].append((sample.labels, sample.value))
        except (ValueError, KeyError, IndexError) as error:
            raise EngineError(
                "the metrics page is no Prometheus text",
                evidence=f"{error}; begins {text[:120]!r}",
                next_step="check that the URL is the engine's own /metrics",
            ) from error

    def of(self, figure: str, suffix: str = "") -> list[tuple[dict[str, str], float]]:
        for _, name in NAMES[figure]:
            if found := self._by_name.get(name + suffix):
                return found
        return []

    def total(self, figure: str, suffix: str = "") -> float | None:
        """Sum over label sets (one series an `engine`); None if the figure is not published."""
        found = self.of(figure, suffix)
        return math.fsum(value for _, value in found) if found else None

    def by(self, figure: str, label: str) -> dict[str, float]:
        out: defaultdict[str, float] = defaultdict(float)
        for labels, value in self.of(figure):
            out[labels.get(label, "")] += value
        return dict(out)

    def histogram(self, figure: str) -> Histogram | None:
        buckets: defaultdict[float, float] = defaultdict(float)
        for labels, value in self.of(figure, "_bucket"):
            buckets[float(labels["le"])] += value
        total, count = self.total(figure, "_sum"), self.total(figure, "_count")
        if not buckets or total is None or count is None:
            return None
        bounds = tuple(sorted(buckets))
        return Histogram(bounds, tuple(buckets[b] for b in bounds), total, count)

    def names(self) -> Iterable[str]:
        return self._by_name


def read(text: str) -> EngineScrape:
    """Read one exposition, summed over engine cores; see `EngineScrape` for what is None.

    Raises:
        EngineError: the text is no Prometheus exposition, or has no vLLM metric.
    """
    samples = _Samples(text)
    if not any(name.startswith("vllm:") for name in samples.names()):
        raise EngineError(
            "the metrics page has no vLLM metrics",
            evidence=f"{sum(1 for _ in samples.names())} metric names, none begins with vllm:",
            next_step="check the port; vLLM hides its metrics with --disable-log-stats",
        )
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
        kv_cache_usage=_mean(samples.of("kv_cache_usage")),
        start_time=samples.total("start_time"),
        spec=_speculation(samples),
        ttft=ttft,
        tpot=samples.histogram("tpot"),
        itl=samples.histogram("itl"),
        e2e=samples.histogram("e2e"),
    )


def _speculation(samples: _Samples) -> SpecCounters | None:
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


def _mean(samples: list[tuple[dict[str, str], float]]) -> float | None:
    return math.fsum(value for _, value in samples) / len(samples) if samples else None
