"""From a finished session to the published result."""

from __future__ import annotations

import resource
from collections import Counter
from typing import TYPE_CHECKING, Literal

from outrider.load.outcome import Outcome
from outrider.load.recorder import latency
from outrider.load.result import ClientHealth, EngineWindow, LoadResult
from outrider.load.validity import Evidence, findings

if TYPE_CHECKING:
    from outrider.load.engine_window import EngineWatch
    from outrider.load.session import LoadSession
    from outrider.load.timing import TokenSource
    from outrider.load.workloads import Workload


def assemble(session: LoadSession, watch: EngineWatch | None, workload: Workload) -> LoadResult:
    """Put the result together and judge it."""
    plan, recorder, window = session.plan, session.recorder, session.window
    engine: EngineWindow | None = None
    if watch is not None and window.opened_at is not None:
        engine = watch.summary(recorder.window_tpot.mean)
    outcomes, unmeasured = recorder.outcomes, recorder.unmeasured
    if session.gave_up and not outcomes:  # ended in the warm-up: its outcomes are all there is
        outcomes = Counter({o: n for o, n in unmeasured.items() if o is not Outcome.CANCELLED})
    span = window.length_s
    result = LoadResult(
        status="ok",
        model=plan.model,
        endpoint=plan.endpoint,
        ignore_eos=plan.ignore_eos,
        arrivals=plan.arrivals.kind,
        concurrency=plan.concurrency,
        rate=plan.rate,
        labels=plan.labels,
        workload_version=workload.version,
        workload_digest=workload.digest,
        prompt_seed=plan.prompt_seed,
        window_s=span,
        window_start_unix=session.opened_unix,
        requests=sum(recorder.outcomes.values()),
        ttft_s=latency(recorder.ttft),
        tpot_s=latency(recorder.tpot),
        icl_s=latency(recorder.icl),
        e2e_s=latency(recorder.e2e),
        tokens=recorder.tokens,
        tokens_in_window=session.tokens_in_window if span > 0 else 0,
        prompt_tokens=recorder.prompt_tokens,
        chunks=recorder.chunks,
        tokens_per_chunk=recorder.tokens / recorder.chunks if recorder.chunks else None,
        throughput_tok_s=session.tokens_in_window / span if span > 0 else None,
        goodput_req_s=recorder.ttft.count / span if span > 0 else None,
        token_source=_source(recorder.sources),
        outcomes={o.value: n for o, n in sorted(outcomes.items())},
        outcomes_unmeasured={o.value: n for o, n in sorted(unmeasured.items())},
        errors={o.value: texts for o, texts in sorted(recorder.errors.items())},
        unique_bigram_ratio=recorder.bigrams.quantile(0.5),
        validity=[],
        engine=engine,
        client=_health(session) if span > 0 else None,
    )
    evidence = Evidence(
        result=result,
        plan=plan,
        gave_up=session.gave_up,
        distinct_prompts=len(workload),
        measured_sent=window.sent,
        trend=recorder.trend.relative_change(span),
        metrics_error=watch.error if watch is not None and engine is None else "",
        failed_unmeasured=sum(n for o, n in recorder.unmeasured.items() if not o.ok and o is not Outcome.CANCELLED),
    )
    found = findings(evidence)
    worst: Literal["ok", "flagged", "invalid"] = "ok"
    for finding in found:
        if finding.severity == "invalid" or (finding.severity == "flagged" and worst == "ok"):
            worst = finding.severity
    return result.model_copy(update={"validity": found, "status": worst})


def _source(sources: Counter[TokenSource]) -> TokenSource | Literal["mixed"]:
    return "mixed" if len(sources) > 1 else next(iter([*sources]), "none")


def _health(session: LoadSession) -> ClientHealth:
    lag = session.lag
    return ClientHealth(
        cpu_share=session.cpu_s / session.window.length_s,
        lag_mean_s=lag.mean or 0.0,
        lag_p99_s=lag.quantile(0.99) or 0.0,
        lag_max_s=lag.high,
        mean_in_flight=session.mean_in_flight,
        lateness_s=latency(session.recorder.lateness),
        reconnects=session.client.meter.reconnects,
        max_rss_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    )
