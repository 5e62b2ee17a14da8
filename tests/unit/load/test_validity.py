"""Each check fires on its own fault, and on nothing else."""

import pytest

from outrider.load import ClientHealth, EngineWindow, Latency, LoadPlan, LoadResult
from outrider.load.outcome import Outcome
from outrider.load.validity import Evidence, findings

CLOSED = {"kind": "closed", "concurrency": 4}
OPEN = {"kind": "poisson", "rate": 5.0}


def some(value: float, count: int = 40) -> Latency:
    return Latency(mean=value, p50=value, p90=value, p95=value, p99=value, count=count)


def evidence(
    *,
    plan: dict | None = None,
    client: dict | None = None,
    engine: dict | None = None,
    result: dict | None = None,
    **more,
) -> Evidence:
    """A flawless cell, with faults put in."""
    given = {"url": "http://h", "model": "m", "workload": "chat", "arrivals": CLOSED, "requests": 40, "engine": "vllm"}
    whole_plan = LoadPlan(**(given | (plan or {})))
    health = {"cpu_share": 0.1, "lag_mean_s": 0.0004, "lag_p99_s": 0.001, "lag_max_s": 0.002, "mean_in_flight": 4.0}
    health |= {"lateness_s": some(0.001), "reconnects": 0, "max_rss_bytes": 1} | (client or {})
    window = {"adapter": "vllm", "window_s": 9.0, "generation_tokens": 4000.0, "tpot_mean_s": 0.02}
    window |= {"client_tpot_mean_s": 0.0201, "preemptions": 0.0, "prefix_queries": 1000.0, "prefix_hits": 50.0}
    window |= {"mean_running": 4.0, "mean_waiting": 0.0, "samples": 5} | (engine or {})
    fields = {
        "status": "ok",
        "model": "m",
        "endpoint": "chat",
        "ignore_eos": False,
        "arrivals": "closed",
        "concurrency": whole_plan.concurrency,
        "rate": whole_plan.rate,
        "labels": whole_plan.labels,
        "workload_version": 1,
        "workload_digest": "d",
        "prompt_seed": 0,
        "window_s": 9.0,
        "window_start_unix": 1.0,
        "requests": 40,
        "ttft_s": some(0.05),
        "tpot_s": some(0.02),
        "icl_s": some(0.02),
        "e2e_s": some(1.0),
        "tokens": 4000,
        "tokens_in_window": 4000,
        "prompt_tokens": 900,
        "chunks": 4000,
        "tokens_per_chunk": 1.0,
        "throughput_tok_s": 440.0,
        "goodput_req_s": 4.4,
        "token_source": "continuous_usage",
        "outcomes": {"length": 40},
        "outcomes_unmeasured": {"length": 4, "cancelled": 4},
        "errors": {},
        "unique_bigram_ratio": 0.9,
        "validity": [],
        "engine": EngineWindow(**window),
        "client": ClientHealth(**health),
    }
    rest = {"gave_up": False, "distinct_prompts": 60, "measured_sent": 40, "trend": (0.01, 0.5)}
    rest |= {"metrics_error": "", "failed_unmeasured": 0}
    return Evidence(result=LoadResult(**(fields | (result or {}))), plan=whole_plan, **(rest | more))


def found(case: Evidence) -> dict[str, str]:
    return {finding.code: finding.severity for finding in findings(case)}


def test_a_flawless_cell_has_no_findings() -> None:
    assert found(evidence()) == {}
    assert found(evidence(plan={"arrivals": OPEN, "speculates": False})) == {}


FROM_CACHE = {"arrivals": {"kind": "closed", "concurrency": 4, "waves": True}, "distinct_prompts": 4}
CASES = [
    ({"result": {"outcomes": {"length": 39, "reset": 1}}}, "outcome_reset", "flagged"),
    ({"result": {"outcomes": {"length": 30, "reset": 10}}}, "outcome_reset", "invalid"),
    ({"result": {"outcomes": {"length": 39, "tokens_without_text": 1}}}, "outcome_tokens_without_text", "invalid"),
    ({"failed_unmeasured": 2}, "warmup_failures", "flagged"),
    ({"result": {"token_source": "final_usage"}}, "tpot_n_minus_1", "info"),
    ({"result": {"token_source": "mixed"}}, "tpot_n_minus_1", "info"),
    ({"result": {"token_source": "none"}}, "no_usage", "invalid"),
    ({"plan": {"arrivals": OPEN}, "client": {"lateness_s": some(0.2)}}, "late_sends", "invalid"),
    ({"client": {"mean_in_flight": 3.0}, "engine": {"mean_running": 3.0}}, "concurrency_not_held", "flagged"),
    ({"client": {"cpu_share": 0.85}}, "client_cpu", "flagged"),
    ({"client": {"cpu_share": 0.97}}, "client_cpu", "invalid"),
    ({"client": {"lag_mean_s": 0.004, "lag_p99_s": 0.009}}, "client_lag", "flagged"),
    ({"client": {"lag_p99_s": 0.02}}, "client_lag", "flagged"),
    ({"measured_sent": 7}, "window_short", "flagged"),
    ({"trend": (0.3, 9.0)}, "not_steady", "flagged"),
    ({"trend": (-0.3, -9.0)}, "not_steady", "flagged"),
    ({"distinct_prompts": 39}, "prompts_repeat", "info"),
    ({"result": {"unique_bigram_ratio": 0.2}}, "repetitive_output", "flagged"),
    ({"engine": {"restarted": True}}, "engine_restarted", "invalid"),
    ({"engine": {"preemptions": 3.0}}, "preemptions", "flagged"),
    ({"engine": {"mean_running": 2.5, "mean_waiting": 1.5}}, "capacity_limited", "flagged"),
    ({"engine": {"prefix_hits": 500.0}}, "prefix_cache_hits", "flagged"),
    ({"engine": {"prefix_hits": 500.0}, "plan": {"expect_prefix_hits": True}}, "prefix_cache_hits", "info"),
    ({"engine": {"prefix_hits": 990.0}, "plan": FROM_CACHE}, "prefix_cache_hits", "info"),
    ({"engine": {"prefix_hits": 700.0}, "plan": FROM_CACHE}, "prompts_read_again", "flagged"),
    ({"engine": {"prefix_queries": 0.0, "prefix_hits": 0.0}, "plan": FROM_CACHE}, "prompts_read_again", "flagged"),
    ({"engine": {"generation_tokens": 5000.0}}, "token_count_differs", "flagged"),
    ({"engine": {"tpot_mean_s": 0.025}}, "tpot_differs", "flagged"),
    ({"plan": {"speculates": True}, "engine": {"drafts": 0.0}}, "no_drafts", "invalid"),
    ({"plan": {"speculates": True}, "engine": {"drafts": None}}, "no_drafts", "invalid"),
    ({"plan": {"speculates": False}, "engine": {"drafts": 9.0}}, "unexpected_drafts", "invalid"),
    ({"result": {"engine": None}, "metrics_error": "refused"}, "no_engine_metrics", "flagged"),
]


@pytest.mark.parametrize(("faults", "code", "severity"), CASES)
def test_each_fault_has_one_finding_of_its_own(faults: dict, code: str, severity: str) -> None:
    assert found(evidence(**faults)) == {code: severity}


@pytest.mark.parametrize(
    "harmless",
    [
        {"plan": {"arrivals": OPEN}, "client": {"lateness_s": some(0.04)}},
        {"plan": {"arrivals": OPEN}, "client": {"lateness_s": some(0.2)}, "result": {"ttft_s": some(3.0)}},
        {"client": {"lag_mean_s": 0.004, "lag_p99_s": 0.009}, "result": {"ttft_s": some(0.5)}},
        {"trend": (0.3, 1.0)},
        {"trend": (0.05, 30.0)},
        {"trend": None},
        {"plan": {"speculates": True}, "engine": {"drafts": 5.0}},
        {"plan": FROM_CACHE, "engine": {"prefix_queries": None, "prefix_hits": None}},
        {"plan": FROM_CACHE | {"distinct_prompts": 5}},  # more than the warm-up read: nothing is promised
        {"plan": {"speculates": None}, "engine": {"drafts": 0.0}},
        {"engine": {"prefix_queries": 0.0, "prefix_hits": 0.0}},
        {"result": {"unique_bigram_ratio": None}},
    ],
)
def test_what_is_small_or_unknown_is_no_fault(harmless: dict) -> None:
    assert found(evidence(**harmless)) == {}


def test_final_usage_is_flagged_where_chunks_carry_several_tokens() -> None:
    case = evidence(plan={"speculates": True}, engine={"drafts": 5.0}, result={"token_source": "final_usage"})
    assert found(case) == {"tpot_n_minus_1": "flagged"}


def test_nothing_measured_is_invalid() -> None:
    case = evidence(result={"outcomes": {"refused": 4}, "ttft_s": Latency(), "tpot_s": Latency()})
    assert {"nothing_measured": "invalid", "outcome_refused": "invalid"}.items() <= found(case).items()


def test_giving_up_is_said_with_the_reason() -> None:
    case = evidence(
        gave_up=True, result={"outcomes": {"refused": 4}, "engine": None, "client": None, "ttft_s": Latency()}
    )
    assert found(case) == {"gave_up": "invalid", "outcome_refused": "invalid"}


def test_the_worst_comes_first() -> None:
    case = evidence(distinct_prompts=1, client={"cpu_share": 0.99}, trend=(0.5, 9.0))
    assert [f.severity for f in findings(case)] == ["invalid", "flagged", "info"]


@pytest.mark.parametrize("outcome", list(Outcome))
def test_every_outcome_has_a_meaning_and_every_failure_a_next_step(outcome: Outcome) -> None:
    assert outcome.meaning
    assert bool(outcome.next_step) == (not outcome.ok and outcome is not Outcome.CANCELLED)
