"""Is this a measurement? Each check looks at one way in which benchmarks go wrong. Pure.

Limits are stated here, once; docs/measuring.md explains each code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from outrider.load.outcome import Outcome
from outrider.load.result import Finding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from outrider.load.plan import LoadPlan
    from outrider.load.result import EngineWindow, LoadResult

FAILED_SHARE = 0.05  # failed requests above this make a cell invalid; fewer flag it
LATE_S = 0.05  # open loop: p99 lateness above this means that the client did not keep its schedule
LATE_SHARE_OF_TTFT = 0.5  # ... unless it is small against what is measured; p99 lateness / median TTFT
CPU_INVALID, CPU_FLAGGED = 0.95, 0.8  # of one core; the client runs in one
LAG_S = 0.005  # p99 event-loop lag below this never matters (the timer itself has 1 ms)
LAG_SHARE_OF_MEAN, LAG_SHARE_OF_P99 = 0.05, 0.25  # of TTFT: mean lag to its mean, p99 to its p99
HELD_SHARE = 0.95  # closed loop: mean requests in flight / users
HELD_SHARE_WAVES = 0.6  # in waves, which end with their slowest request
RUNNING_SHARE = 0.9  # requests running in the engine / requests in flight
PREFIX_HIT_SHARE = 0.1  # chat templates and system prompts alone stay below this
FROM_CACHE_SHARE = 0.8  # prompts that should be there: a last block or two, which the engine reads again, are not
REPETITIVE = 0.4  # median unique-bigram ratio; natural prose has 0.8-1.0, loops fall below 0.2
DRIFT_SHARE, DRIFT_T = 0.15, 3.0  # TPOT change over the window, and its t statistic
TRAFFIC_SHARE = 0.05  # engine tokens against client tokens
TPOT_SHARE = 0.05  # client TPOT against the engine's own
MIN_ROUNDS = 2  # measured requests / concurrency


@dataclass(frozen=True, slots=True)
class Evidence:
    """What checks look at.

    Attributes:
        result: all figures, without findings.
        plan: what was asked.
        gave_up: requests failed one after the other and the test was ended early.
        distinct_prompts: prompts in the workload.
        measured_sent: measured requests sent.
        trend: change of TPOT over the window as a share of its mean, and its t statistic.
        metrics_error: why the engine's metrics are missing.
        failed_unmeasured: warm-up and cool-down requests that failed.
    """

    result: LoadResult
    plan: LoadPlan
    gave_up: bool
    distinct_prompts: int
    measured_sent: int
    trend: tuple[float, float] | None
    metrics_error: str
    failed_unmeasured: int


def findings(evidence: Evidence) -> list[Finding]:
    """All findings, the worst first."""
    found = [finding for check in _CHECKS for finding in check(evidence)]
    order = {"invalid": 0, "flagged": 1, "info": 2}
    return sorted(found, key=lambda finding: order[finding.severity])


def _outcomes(e: Evidence) -> Iterator[Finding]:
    """Requests that did not end well, each way under its own name."""
    counts = {Outcome(name): n for name, n in e.result.outcomes.items()}
    total = sum(counts.values())
    good = sum(n for outcome, n in counts.items() if outcome.ok)
    if e.gave_up:
        yield Finding(
            code="gave_up",
            severity="invalid",
            evidence="requests failed one after the other, so the test was ended early",
            fix="see the outcomes below",
        )
    elif good == 0:
        yield Finding(code="nothing_measured", severity="invalid", evidence=f"{total} requests, none ended well")
    severity = "invalid" if total - good > FAILED_SHARE * total else "flagged"
    for outcome, n in counts.items():
        if outcome.ok:
            continue
        text = (e.result.errors.get(outcome.value) or [""])[0]
        loud = outcome is Outcome.TOKENS_WITHOUT_TEXT
        yield Finding(
            code=f"outcome_{outcome.value}",
            severity="invalid" if loud or severity == "invalid" else "flagged",
            evidence=f"{n} of {total}: {outcome.meaning}" + (f": {text}" if text else ""),
            fix=outcome.next_step,
        )
    if e.failed_unmeasured and not e.gave_up:
        yield Finding(
            code="warmup_failures",
            severity="flagged",
            evidence=f"{e.failed_unmeasured} warm-up or cool-down requests failed: {e.result.outcomes_unmeasured}",
            fix="see `errors` for their texts",
        )


def _token_source(e: Evidence) -> Iterator[Finding]:
    if e.result.ttft_s.count == 0:
        return
    source = e.result.token_source
    if source == "none":
        yield Finding(
            code="no_usage",
            severity="invalid",
            evidence="the server sent no usage, so tokens are unknown",
            fix="use a server that honours stream_options.include_usage",
        )
    elif source != "continuous_usage":
        yield Finding(
            code="tpot_n_minus_1",
            severity="flagged" if e.plan.speculates else "info",
            evidence=f"token counts: {source}; the first chunk was taken for one token",
            fix="compare only with figures of the same definition; vLLM and SGLang can send continuous usage",
        )


def _schedule(e: Evidence) -> Iterator[Finding]:
    """Coordinated omission: an open loop that waits, a closed loop that idles."""
    client = e.result.client
    if client is None:
        return
    late = client.lateness_s.p99
    if e.plan.concurrency is None:
        ttft = e.result.ttft_s.p50 or 0.0
        if late is not None and late > max(LATE_S, LATE_SHARE_OF_TTFT * ttft):
            yield Finding(
                code="late_sends",
                severity="invalid",
                evidence=f"99 % of requests were sent within {late * 1e3:.0f} ms of their schedule, not sooner",
                fix="lower the rate, or give the client more CPU: latencies leave out the wait before sending",
            )
    elif client.mean_in_flight < _held(e.plan) * e.plan.concurrency and not e.gave_up:
        yield Finding(
            code="concurrency_not_held",
            severity="flagged",
            evidence=f"{client.mean_in_flight:.1f} requests in flight on average, {e.plan.concurrency} asked for",
            fix="longer answers or more requests; if requests failed, see their outcomes",
        )


def _held(plan: LoadPlan) -> float:
    return HELD_SHARE_WAVES if plan.in_waves else HELD_SHARE


def _client(e: Evidence) -> Iterator[Finding]:
    client = e.result.client
    if client is None:
        return
    if client.cpu_share > CPU_FLAGGED:
        yield Finding(
            code="client_cpu",
            severity="invalid" if client.cpu_share > CPU_INVALID else "flagged",
            evidence=f"the client used {client.cpu_share:.0%} of a core: its own queue is in the latencies",
            fix="lower the load, or split it over several machines",
        )
    ttft = e.result.ttft_s
    shift = client.lag_mean_s > LAG_SHARE_OF_MEAN * (ttft.mean or 0.0)
    tail = client.lag_p99_s > LAG_SHARE_OF_P99 * (ttft.p99 or 0.0)
    if ttft.count and client.lag_p99_s > LAG_S and (shift or tail):
        yield Finding(
            code="client_lag",
            severity="flagged",
            evidence=f"the client's event loop was {client.lag_mean_s * 1e3:.1f} ms late on average and "
            f"{client.lag_p99_s * 1e3:.1f} ms at p99, which TTFT contains",
            fix="leave the client a core of its own",
        )


def _steady(e: Evidence) -> Iterator[Finding]:
    result, users = e.result, e.plan.concurrency
    if users is not None and users > 1 and 0 < e.measured_sent < MIN_ROUNDS * users:
        yield Finding(
            code="window_short",
            severity="flagged",
            evidence=f"{e.measured_sent} measured requests at concurrency {users}: start and end weigh too much",
            fix=f"measure at least {MIN_ROUNDS * users} requests",
        )
    if e.trend is not None and abs(e.trend[0]) > DRIFT_SHARE and abs(e.trend[1]) > DRIFT_T:
        yield Finding(
            code="not_steady",
            severity="flagged",
            evidence=f"TPOT changed by {e.trend[0]:+.0%} over the window ({result.window_s:.1f} s)",
            fix="more warm-up requests, or look for what else runs on the node",
        )
    if e.measured_sent > e.distinct_prompts > 0:
        yield Finding(
            code="prompts_repeat",
            severity="info",
            evidence=f"{e.measured_sent} measured requests over {e.distinct_prompts} distinct prompts",
            fix="repeated prompts are found in the prefix cache; use a larger set to exclude that",
        )
    ratio = result.unique_bigram_ratio
    if ratio is not None and ratio < REPETITIVE:
        yield Finding(
            code="repetitive_output",
            severity="flagged",
            evidence=f"half of the outputs have a unique-bigram ratio below {ratio:.2f}",
            fix="acceptance on looping text is too high; drop ignore_eos, shorten max_tokens or raise temperature",
        )


def _engine_state(e: Evidence) -> Iterator[Finding]:
    engine, client = e.result.engine, e.result.client
    if e.plan.engine is not None and engine is None and not e.gave_up:
        yield Finding(
            code="no_engine_metrics",
            severity="flagged",
            evidence=e.metrics_error or "no reading",
            fix="check engine and metrics_path; without them acceptance, preemptions and cache hits are unknown",
        )
    if engine is None or client is None:
        return
    if engine.restarted:
        yield Finding(
            code="engine_restarted",
            severity="invalid",
            evidence="the engine's start time changed within the window",
            fix="read the engine's log for the crash",
        )
        return
    if engine.preemptions:
        yield Finding(
            code="preemptions",
            severity="flagged",
            evidence=f"{engine.preemptions:.0f} requests were thrown out of the KV cache and recomputed",
            fix="more KV memory, fewer users or shorter contexts",
        )
    running, waiting = engine.mean_running, engine.mean_waiting or 0.0
    if running is not None and waiting > 0 and running < RUNNING_SHARE * client.mean_in_flight:
        yield Finding(
            code="capacity_limited",
            severity="flagged",
            evidence=f"{client.mean_in_flight:.1f} requests in flight, but {running:.1f} running "
            f"and {waiting:.1f} waiting in the engine",
            fix="this is the throughput of a smaller batch: raise the engine's sequence limit or KV memory",
        )
    yield from _prefix_cache(e.plan, engine)


def _prefix_cache(plan: LoadPlan, engine: EngineWindow) -> Iterator[Finding]:
    """Prompts that should not have been in the cache, or should have been; queries are 0 where there is no cache."""
    if engine.prefix_queries is None or engine.prefix_hits is None:
        return
    share = engine.prefix_hits / engine.prefix_queries if engine.prefix_queries else 0.0
    if plan.from_cache and share < FROM_CACHE_SHARE:
        yield Finding(
            code="prompts_read_again",
            severity="flagged",
            evidence=f"only {share:.0%} of prompt tokens came from the prefix cache, so some users' prompts were read "
            "while others decoded",
            fix="enable-prefix-caching, and room in the KV cache for the prompts of all users",
        )
    elif share > PREFIX_HIT_SHARE:
        yield Finding(
            code="prefix_cache_hits",
            severity="info" if plan.expect_prefix_hits or plan.from_cache else "flagged",
            evidence=f"{share:.0%} of prompt tokens came from the prefix cache",
            fix="new prompts (another prompt_seed or a larger set) or a reset cache",
        )


def _agreement(e: Evidence) -> Iterator[Finding]:
    """Do client and engine tell the same story?"""
    engine, result = e.result.engine, e.result
    if engine is None or engine.restarted:
        return
    seen = engine.generation_tokens
    if seen is not None and abs(seen - result.tokens_in_window) > max(TRAFFIC_SHARE * result.tokens_in_window, 64):
        yield Finding(
            code="token_count_differs",
            severity="flagged",
            evidence=f"the engine produced {seen:.0f} tokens in the window, the client received "
            f"{result.tokens_in_window}",
            fix="is there other traffic on this engine? Several engines behind one address?",
        )
    ours, theirs = engine.client_tpot_mean_s, engine.tpot_mean_s
    if ours and theirs and result.tpot_s.count >= 4 and abs(ours - theirs) > TPOT_SHARE * theirs:
        yield Finding(
            code="tpot_differs",
            severity="flagged",
            evidence=f"mean TPOT {ours * 1e3:.2f} ms here, {theirs * 1e3:.2f} ms in the engine",
            fix="the engine counts requests that it finished in the window; look at network and proxies",
        )


def _speculation(e: Evidence) -> Iterator[Finding]:
    engine = e.result.engine
    if engine is None or e.plan.speculates is None:
        return
    if e.plan.speculates and not engine.drafts:
        yield Finding(
            code="no_drafts",
            severity="invalid",
            evidence="speculation counters are "
            + ("absent" if engine.drafts is None else "zero")
            + " although the variant speculates",
            fix="read the engine's start-up log; n-gram and suffix need text that repeats",
        )
    if not e.plan.speculates and engine.drafts:
        yield Finding(
            code="unexpected_drafts",
            severity="invalid",
            evidence=f"{engine.drafts:.0f} drafts although the variant does not speculate",
            fix="is this the right server?",
        )


_CHECKS: tuple[Callable[[Evidence], Iterator[Finding]], ...] = (
    _outcomes,
    _token_source,
    _schedule,
    _client,
    _steady,
    _engine_state,
    _agreement,
    _speculation,
)
