"""What every engine adapter provides, and the typed figures that the rest of Outrider reads.

An adapter (`engine/vllm.py`, ...) is the only module that knows its engine's flags, log lines and metric
names. It turns them into the types below; nothing else in Outrider names an engine's metric.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from outrider.stack.schema import Stack


@dataclass(frozen=True, slots=True)
class Histogram:
    """A Prometheus histogram summed over engines.

    Attributes:
        bounds: upper bounds in seconds, ascending; the last is `inf`.
        counts: cumulative observations at or below each bound, same length as `bounds`.
        sum: sum of all observations, in seconds.
        count: number of observations.
    """

    bounds: tuple[float, ...]
    counts: tuple[float, ...]
    sum: float
    count: float

    @property
    def mean(self) -> float | None:
        """Mean in seconds; None without observations."""
        return self.sum / self.count if self.count > 0 else None

    def since(self, earlier: Histogram) -> Histogram:
        """Observations made after `earlier` was read (the engine did not restart in between)."""
        if earlier.bounds != self.bounds:
            return self
        return Histogram(
            self.bounds,
            tuple(now - then for now, then in zip(self.counts, earlier.counts, strict=True)),
            self.sum - earlier.sum,
            self.count - earlier.count,
        )


@dataclass(frozen=True, slots=True)
class SpecCounters:
    """Speculation counters: totals at a scrape, or their differences over a window.

    Attributes:
        drafts: drafting events; one request in one step that had draft tokens to verify.
        draft_tokens: tokens proposed.
        accepted_tokens: proposed tokens that the target kept.
        accepted_per_pos: accepted tokens at draft position 0, 1, ..., k-1.
    """

    drafts: float
    draft_tokens: float
    accepted_tokens: float
    accepted_per_pos: tuple[float, ...] = ()

    def since(self, earlier: SpecCounters) -> SpecCounters:
        """What was counted after `earlier`."""
        width = max(len(self.accepted_per_pos), len(earlier.accepted_per_pos))
        now, then = (c + (0.0,) * (width - len(c)) for c in (self.accepted_per_pos, earlier.accepted_per_pos))
        return SpecCounters(
            self.drafts - earlier.drafts,
            self.draft_tokens - earlier.draft_tokens,
            self.accepted_tokens - earlier.accepted_tokens,
            tuple(a - b for a, b in zip(now, then, strict=True)),
        )

    @property
    def acceptance_length(self) -> float | None:
        """AL = 1 + accepted/drafts: tokens per *drafted* step; None if nothing was drafted."""
        return 1 + self.accepted_tokens / self.drafts if self.drafts > 0 else None

    @property
    def per_position(self) -> tuple[float, ...]:
        """Unconditional acceptance by position: accepted at i / drafts; empty if nothing was drafted."""
        return tuple(a / self.drafts for a in self.accepted_per_pos) if self.drafts > 0 else ()

    @property
    def per_position_conditional(self) -> tuple[float, ...]:
        """Acceptance at i given that i-1 was accepted; stops at the first position never reached."""
        chain = (self.drafts, *self.accepted_per_pos)
        out: list[float] = []
        for before, here in pairwise(chain):
            if before <= 0:
                break
            out.append(here / before)
        return tuple(out)


@dataclass(frozen=True, slots=True)
class EngineScrape:
    """One reading of an engine's metrics, summed over its engine cores.

    Counters are totals since start; `since` gives differences. A figure that the engine does not publish
    is None, never 0.

    Attributes:
        generation_tokens: output tokens produced.
        prompt_tokens: prompt tokens processed.
        first_tokens: requests that have produced their first token.
        finished: finished requests by the engine's reason (`stop`, `length`, `abort`, ...).
        preemptions: requests thrown out of the KV cache and recomputed.
        prefix_queries: prompt tokens looked up in the prefix cache.
        prefix_hits: of these, tokens found there.
        running: requests in the running batch now (gauge).
        waiting: requests queued now (gauge).
        kv_cache_usage: share of KV blocks in use now, 0-1 (gauge).
        start_time: process start, Unix seconds; a change between scrapes means a restart.
        spec: speculation counters, None for a variant that does not speculate.
        ttft: time to first token as the engine sees it.
        tpot: time per output token of finished requests as the engine sees it.
        itl: time between streamed outputs (not tokens) as the engine sees it.
        e2e: end-to-end latency of finished requests.
    """

    generation_tokens: float | None = None
    prompt_tokens: float | None = None
    first_tokens: float | None = None
    finished: Mapping[str, float] = field(default_factory=dict)
    preemptions: float | None = None
    prefix_queries: float | None = None
    prefix_hits: float | None = None
    running: float | None = None
    waiting: float | None = None
    kv_cache_usage: float | None = None
    start_time: float | None = None
    spec: SpecCounters | None = None
    ttft: Histogram | None = None
    tpot: Histogram | None = None
    itl: Histogram | None = None
    e2e: Histogram | None = None

    _GAUGES = ("running", "waiting", "kv_cache_usage", "start_time")

    def since(self, earlier: EngineScrape) -> EngineScrape:
        """Counters and histograms as differences to `earlier`; gauges stay as read now."""
        out: dict[str, object] = {}
        for f in fields(self):
            now, then = getattr(self, f.name), getattr(earlier, f.name)
            if f.name in self._GAUGES or now is None or then is None:
                out[f.name] = now
            elif isinstance(now, Histogram | SpecCounters):
                out[f.name] = now.since(then)
            elif f.name == "finished":
                out[f.name] = {k: v - then.get(k, 0.0) for k, v in now.items()}
            else:
                out[f.name] = now - then
        return EngineScrape(**out)  # type: ignore[arg-type]

    @property
    def tokens_per_step(self) -> float | None:
        """Tokens a request gains in one decode step, over a window given by `since`.

        (tokens - requests) / (tokens - requests - accepted): the first token of a request comes from its
        prefill, and each step yields one token of the target plus the accepted drafts. 1.0 without
        speculation. Unlike AL it also counts the steps at which nothing was drafted.
        """
        if self.generation_tokens is None or self.first_tokens is None:
            return None
        decoded = self.generation_tokens - self.first_tokens
        steps = decoded - (self.spec.accepted_tokens if self.spec else 0.0)
        return decoded / steps if decoded > 0 and steps > 0 else None


@dataclass(frozen=True, slots=True)
class StartupFacts:
    """What the engine chose for itself, read from its start-up log; None where the log does not say.

    Attributes:
        version: the engine's own version string.
        attention_backend: selected attention backend.
        graph_mode: CUDA-graph mode, or `eager`.
        model_runner: `v1` or `v2` where the engine tells.
        kv_tokens: tokens that the KV cache holds.
        spec_method: speculative method in force, None if the variant does not speculate.
        aux_layers: target layers that an EAGLE-3 head reads; guessed ones ruin acceptance silently.
    """

    version: str | None = None
    attention_backend: str | None = None
    graph_mode: str | None = None
    model_runner: str | None = None
    kv_tokens: int | None = None
    spec_method: str | None = None
    aux_layers: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start one variant: what a runtime needs to know, and nothing about how it does it.

    Attributes:
        argv: command and arguments; argv[0] is an absolute interpreter path or a name on PATH.
        env: variables to set on top of the inherited environment.
        port: TCP port that the OpenAI-compatible API will listen on.
        health_path: path that answers 200 once requests are served.
        metrics_path: path of the Prometheus text.
        weight_bytes: bytes read from disk before readiness (target and drafter); 0 if unknown.
        progress: patterns over log lines, in the order in which a start passes them, each with the
            share of the start-up it completes (0-1); a group `percent` in one interpolates up to its share.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    port: int
    health_path: str
    metrics_path: str
    weight_bytes: int = 0
    progress: tuple[tuple[str, float], ...] = ()


class EngineAdapter(Protocol):
    """One engine's facts.

    Attributes:
        name: the stack's word for the engine.
        key_variable: environment variable that holds the API key; None if only the command line, which every user of
            the machine can read, could carry it.
        tpot_bounds_s: bounds of its histogram of time per output token, in seconds.
    """

    name: str
    tpot_bounds_s: tuple[float, ...]
    key_variable: str | None

    def launch(
        self, stack: Stack, variant: str, *, host: str, port: int, model_dir: Path | None, drafter_dir: Path | None
    ) -> Launch:
        """Render argv and env of a variant; local directories replace repository ids when given."""
        ...

    def startup_facts(self, log_lines: Iterable[str]) -> StartupFacts:
        """Read the start-up log."""
        ...

    def lossy_settings(self, stack: Stack, variant: str) -> list[str]:
        """Settings of a variant that may change what the target would have answered."""
        ...

    def isolated_cache(self, salt: str) -> dict[str, str]:
        """Request fields that keep requests with another salt out of each other's prefix cache."""
        ...

    profiler_paths: tuple[str, str]
    """Paths that start and stop recording."""

    def profiler_flags(self, directory: Path) -> dict[str, Any]:
        """Flags under which the engine can be told to record its steps, and writes traces into a directory."""
        ...

    def profiler_request(self, *, skip: int, steps: int) -> dict[str, object]:
        """Body that starts recording `steps` steps after `skip` have passed."""
        ...

    def read_metrics(self, text: str) -> EngineScrape:
        """Read one Prometheus exposition; raises EngineError if it is not this engine's."""
        ...

    def metrics_query(self, figure: str, *, by: str, window: str) -> str | None:
        """PromQL that asks Prometheus for a figure of `exposition.QUERIED`.

        Args:
            figure: counters and histogram parts give rates per second, gauges their value now.
            by: labels to keep, such as `stack, variant`; the engine's own label of its cores is summed over.
            window: range of the rates, such as `1m`.

        Returns:
            None if this engine does not publish the figure.
        """
        ...

    def metric_names(self) -> set[str]:
        """Every metric name that `metrics_query` may use."""
        ...

    def dropped_metric_names(self) -> set[str]:
        """Names of versions before, which nothing but the reading of old scrapes may use."""
        ...
