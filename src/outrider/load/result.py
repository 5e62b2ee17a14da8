"""What a load test yields: the documented, stable JSON of `outrider load`, and one row a request.

Fields are only ever added within a `schema` number. Times are seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict

from outrider.load.plan import Labels
from outrider.load.timing import TokenSource

Phase = Literal["warmup", "measured", "cooldown"]
Severity = Literal["invalid", "flagged", "info"]
SCHEMA = 1


class _Block(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Latency(_Block):
    """Distribution of one latency in seconds; every figure is None if there is no value."""

    mean: float | None = None
    p50: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None
    count: int = 0


class Finding(_Block):
    """One reason for doubt.

    Attributes:
        code: stable name, listed in docs/measuring.md.
        severity: `invalid`: do not use the figures; `flagged`: read the evidence first; `info`: a label.
        evidence: the figures that led to it.
        fix: what to do.
    """

    code: str
    severity: Severity
    evidence: str
    fix: str = ""


class EngineWindow(_Block):
    """The engine's own counters, as differences between the two readings around the window.

    A figure that the engine does not publish is None.

    Attributes:
        adapter: which adapter read them.
        window_s: time between the two readings.
        generation_tokens, prompt_tokens, first_tokens: see `EngineScrape`.
        tokens_per_step: tokens a request gained in one decode step (1 without speculation).
        al: acceptance length, 1 + accepted/drafts; None if nothing was drafted.
        drafts, draft_tokens, accepted_tokens: speculation counters; None without them.
        accepted_per_pos: accepted at position i / drafts (unconditional).
        ttft_mean_s, tpot_mean_s: the engine's means over requests that it finished in the window.
        tpot_count: requests behind `tpot_mean_s`.
        client_tpot_mean_s: the client's mean over requests of any phase that ended in the window, to hold
            against `tpot_mean_s` (`tpot_s` leaves out warm-up requests that the engine counts).
        preemptions: requests thrown out and recomputed.
        prefix_queries, prefix_hits: prompt tokens looked up, and found.
        mean_running, mean_waiting: mean of the gauges over samples in the window.
        kv_cache_usage_max: highest share of KV blocks in use in a sample.
        samples: readings behind these.
        restarted: the engine's start time changed.
    """

    adapter: str
    window_s: float
    generation_tokens: float | None = None
    prompt_tokens: float | None = None
    first_tokens: float | None = None
    tokens_per_step: float | None = None
    al: float | None = None
    drafts: float | None = None
    draft_tokens: float | None = None
    accepted_tokens: float | None = None
    accepted_per_pos: tuple[float, ...] = ()
    ttft_mean_s: float | None = None
    tpot_mean_s: float | None = None
    tpot_count: float | None = None
    client_tpot_mean_s: float | None = None
    preemptions: float | None = None
    prefix_queries: float | None = None
    prefix_hits: float | None = None
    mean_running: float | None = None
    mean_waiting: float | None = None
    kv_cache_usage_max: float | None = None
    samples: int = 0
    restarted: bool = False


class ClientHealth(_Block):
    """Was the client itself fit to measure?

    Attributes:
        cpu_share: CPU seconds of the load process / window seconds (1 is one full core).
        lag_mean_s, lag_p99_s, lag_max_s: how late the event loop woke a sleeper.
        mean_in_flight: mean number of measured, warm-up and cool-down requests in flight in the window.
        lateness_s: sends behind their schedule (open loop), or behind the end of the user's previous
            request (closed loop).
        reconnects: requests re-sent because the server had closed an idle connection.
        max_rss_bytes: peak memory of the load process.
    """

    cpu_share: float
    lag_mean_s: float
    lag_p99_s: float
    lag_max_s: float
    mean_in_flight: float
    lateness_s: Latency
    reconnects: int
    max_rss_bytes: int


class LoadResult(_Block):
    """One load test.

    Attributes:
        schema_version: raised when a field changes its meaning.
        status: `ok`, `flagged` or `invalid`: the worst severity in `validity`.
        model, endpoint, ignore_eos, arrivals, concurrency, rate, labels, prompt_seed: from the plan.
        workload_version, workload_digest: what was sent (see `Workload`).
        window_s: first measured send to last measured end; throughput and engine counters are over it.
        window_start_unix: wall-clock time of the first measured send.
        requests: measured requests.
        ttft_s, tpot_s, e2e_s: over measured requests that ended well (one value a request).
        icl_s: over all gaps between chunks of these.
        tokens: output tokens of measured requests that ended well.
        tokens_in_window: output tokens that arrived within the window, whatever request they belong to.
        chunks, tokens_per_chunk: of measured requests that ended well.
        throughput_tok_s: `tokens_in_window` / `window_s`.
        goodput_req_s: measured requests that ended well / `window_s`.
        token_source: where token counts come from.
        outcomes: measured requests by outcome; of the warm-up if every one of its requests failed.
        outcomes_unmeasured: warm-up and cool-down requests by outcome.
        errors: up to five error texts for each outcome that is not ok.
        unique_bigram_ratio: median over outputs; low is repetitive.
        validity: findings.
        engine: None if no engine was named or its metrics could not be read.
        client: None if nothing was measured.
    """

    schema_version: int = SCHEMA
    status: Literal["ok", "flagged", "invalid"]
    model: str
    endpoint: str
    ignore_eos: bool
    arrivals: str
    concurrency: int | None
    rate: float | None
    labels: Labels
    workload_version: int
    workload_digest: str
    prompt_seed: int
    window_s: float
    window_start_unix: float | None
    requests: int
    ttft_s: Latency
    tpot_s: Latency
    icl_s: Latency
    e2e_s: Latency
    tokens: int
    tokens_in_window: int
    prompt_tokens: int
    chunks: int
    tokens_per_chunk: float | None
    throughput_tok_s: float | None
    goodput_req_s: float | None
    token_source: TokenSource | Literal["mixed"]
    outcomes: dict[str, int]
    outcomes_unmeasured: dict[str, int]
    errors: dict[str, list[str]]
    unique_bigram_ratio: float | None
    validity: list[Finding]
    engine: EngineWindow | None = None
    client: ClientHealth | None = None


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One request, flat. `*_at_s` are seconds since the first measured send (negative before it).

    Attributes:
        index: order of sending over all phases.
        prompt_id, category: of the workload.
        phase: only `measured` rows enter the result.
        scheduled_at_s: when an open loop wanted to send; None in a closed loop.
        lateness_s: sent - scheduled (open loop); sent - end of the user's previous request (closed loop).
        text_sha256: digest of the whole output.
        text: first 256 characters of the output, empty if not kept.
        unique_bigrams: see `timing.repetition`; None for short outputs.
        status: HTTP status, 0 if no answer came.
    """

    index: int
    prompt_id: str
    category: str
    phase: Phase
    scheduled_at_s: float | None
    sent_at_s: float | None
    first_at_s: float | None
    last_at_s: float | None
    ended_at_s: float
    lateness_s: float | None
    connect_s: float | None
    ttft_s: float | None
    tpot_s: float | None
    e2e_s: float | None
    prompt_tokens: int | None
    output_tokens: int | None
    first_chunk_tokens: int
    chunks: int
    token_source: str
    finish_reason: str | None
    status: int
    outcome: str
    error: str
    text_sha256: str
    text: str
    unique_bigrams: float | None


@dataclass(frozen=True, slots=True)
class Progress:
    """A load test under way.

    Attributes:
        phase: what is being sent now.
        elapsed_s: since the first send.
        sent, done, failed: requests of all phases.
        measured: measured requests that have ended.
        in_flight: requests under way.
        tokens: output tokens so far.
        tokens_s: output tokens per second since the last report.
        ttft_p50_s, tpot_p50_s: over measured requests so far.
    """

    phase: str
    elapsed_s: float
    sent: int
    done: int
    failed: int
    measured: int
    in_flight: int
    tokens: int
    tokens_s: float
    ttft_p50_s: float | None
    tpot_p50_s: float | None


@dataclass(frozen=True, slots=True)
class LoadOutcome:
    """A result with its rows (empty if the plan spills them to `records_file`)."""

    result: LoadResult
    records: list[RequestRecord]
