"""Live figures of one engine from two of its scrapes: what the dashboards show, without Prometheus."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

from outrider.observe.bands import band_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from outrider.engine import EngineScrape, Histogram

State = Literal["busy", "no traffic", "restarted", "no answer"]
PAYS, LOSES = 1.03, 0.97  # speedups in between are within what a recorded baseline varies by


@dataclass(frozen=True, slots=True)
class Live:
    """What one engine does now. A figure that cannot be told is None, never 0.

    Attributes:
        stack, variant, url: which engine.
        state: whether there is anything to read from it.
        window_s: between the two scrapes.
        running, waiting: requests now.
        kv_cache_usage: share of the KV cache in use.
        tokens_s: output tokens per second.
        ttft_p50_s, tpot_mean_s, tpot_p50_s, tpot_p95_s: of requests that ended in the window, in seconds.
        tokens_per_step, acceptance_length: over the window.
        by_position, by_position_conditional: acceptance at draft position 0, 1, ...
        waste_tokens_s, waste_share: drafted tokens that were thrown away.
        preemptions_s: per second.
        prefix_hits: share of prompt tokens found in the prefix cache.
        band: concurrency band.
        baseline_tpot_s: recorded for baseline in this band.
        speedup: baseline_tpot_s / tpot_mean_s.
        step_cost: step with speculation / plain step.
        break_even: acceptance length at which the speedup is 1.
    """

    stack: str
    variant: str
    url: str
    state: State
    window_s: float = 0.0
    running: float | None = None
    waiting: float | None = None
    kv_cache_usage: float | None = None
    tokens_s: float | None = None
    ttft_p50_s: float | None = None
    tpot_mean_s: float | None = None
    tpot_p50_s: float | None = None
    tpot_p95_s: float | None = None
    tokens_per_step: float | None = None
    acceptance_length: float | None = None
    by_position: tuple[float, ...] = ()
    by_position_conditional: tuple[float, ...] = ()
    waste_tokens_s: float | None = None
    waste_share: float | None = None
    preemptions_s: float | None = None
    prefix_hits: float | None = None
    band: str | None = None
    baseline_tpot_s: float | None = None
    speedup: float | None = None
    step_cost: float | None = None
    break_even: float | None = None

    @property
    def verdict(self) -> str:
        """In words: is speculation paying?"""
        if self.state != "busy":
            return self.state
        if self.speedup is None:
            return f"no baseline recorded for {self.band} users" if self.band else "no baseline recorded"
        who = "speculation" if self.acceptance_length is not None else "this engine"
        if self.speedup >= PAYS:
            return f"{who} pays: {self.speedup:.2f}x"
        return f"{who} loses: {self.speedup:.2f}x" if self.speedup <= LOSES else f"even: {self.speedup:.2f}x"


def restarted(now: EngineScrape, before: EngineScrape) -> bool:
    """Whether the engine's counters began anew in between."""
    if now.start_time is not None and before.start_time is not None:
        return now.start_time != before.start_time
    return (now.generation_tokens or 0.0) < (before.generation_tokens or 0.0)


def live(
    who: tuple[str, str, str],
    before: EngineScrape,
    now: EngineScrape,
    window_s: float,
    *,
    mean_running: float | None,
    baseline_tpot_s: Mapping[str, float],
) -> Live:
    """Figures over a window.

    Args:
        who: stack, variant and URL.
        before: scrape at its beginning.
        now: scrape at its end.
        window_s: seconds between them.
        mean_running: requests in the batch while it was not empty, from scrapes in between; None takes `now`'s.
        baseline_tpot_s: recorded TPOT of baseline by concurrency band, in seconds.
    """
    stack, variant, url = who
    gauges = (now.running, now.waiting, now.kv_cache_usage)
    if restarted(now, before):
        return Live(stack, variant, url, "restarted", window_s, *gauges)
    delta = now.since(before)
    if not delta.generation_tokens:
        return Live(stack, variant, url, "no traffic", window_s, *gauges)
    spec = delta.spec if delta.spec and delta.spec.drafts > 0 else None
    users = mean_running or now.running
    band = band_of(users) if users else None
    baseline = baseline_tpot_s.get(band) if band else None
    tpot = delta.tpot.mean if delta.tpot else None
    speedup = baseline / tpot if baseline and tpot else None
    per_step = delta.tokens_per_step
    cost = per_step / speedup if per_step and speedup else None
    return Live(
        stack, variant, url, "busy", window_s, *gauges,
        tokens_s=delta.generation_tokens / window_s,
        ttft_p50_s=quantile(delta.ttft, 0.5),
        tpot_mean_s=tpot,
        tpot_p50_s=quantile(delta.tpot, 0.5),
        tpot_p95_s=quantile(delta.tpot, 0.95),
        tokens_per_step=per_step,
        acceptance_length=spec.acceptance_length if spec else None,
        by_position=spec.per_position if spec else (),
        by_position_conditional=spec.per_position_conditional if spec else (),
        waste_tokens_s=(spec.draft_tokens - spec.accepted_tokens) / window_s if spec else None,
        waste_share=1 - spec.accepted_tokens / spec.draft_tokens if spec and spec.draft_tokens else None,
        preemptions_s=None if delta.preemptions is None else delta.preemptions / window_s,
        prefix_hits=_prefix_hits(delta),
        band=band,
        baseline_tpot_s=baseline,
        speedup=speedup,
        step_cost=cost,
        break_even=_break_even(delta, cost),
    )  # fmt: skip


def _prefix_hits(delta: EngineScrape) -> float | None:
    if delta.prefix_hits is None or not delta.prefix_queries:
        return None
    return delta.prefix_hits / delta.prefix_queries


def _break_even(delta: EngineScrape, cost: float | None) -> float | None:
    """Tokens a step = 1 + (AL - 1) * share of steps that drafted; at break-even they equal the step-cost ratio."""
    if cost is None or delta.spec is None or not delta.spec.drafts:
        return None
    decoded = (delta.generation_tokens or 0.0) - (delta.first_tokens or 0.0)
    steps = decoded - delta.spec.accepted_tokens
    return max(1.0, 1 + (cost - 1) / min(delta.spec.drafts / steps, 1.0)) if steps > 0 else None


def quantile(histogram: Histogram | None, share: float) -> float | None:
    """A percentile by linear interpolation within its bucket, as Prometheus does it; None without observations."""
    if histogram is None or histogram.count <= 0:
        return None
    rank = share * histogram.counts[-1]
    edges = zip((0.0, *histogram.bounds), (0.0, *histogram.counts), strict=True)
    for (low, below), (high, upto) in pairwise(edges):
        if upto >= rank and upto > below:
            return low if high == float("inf") else low + (high - low) * (rank - below) / (upto - below)
    return None
