"""Names of the series that Outrider itself makes: recorded ones, and those of its exporter.

Everything else that rules and dashboards ask for comes from an engine's adapter, from `load.exporter`, from
`node_metrics`, or from the scheduler that chooses k (`vllm_ext.metrics`); a test holds all rendered files against these
five.
"""

from __future__ import annotations

# The exporter of recorded cells.
BASELINE_TPOT = "outrider_baseline_tpot_seconds"
CELL_TPOT = "outrider_cell_tpot_seconds"
CELL_THROUGHPUT = "outrider_cell_throughput_tokens_per_second"
CELL_TOKENS_PER_STEP = "outrider_cell_tokens_per_step"
CELL_ENDED = "outrider_cell_ended_timestamp_seconds"
PREDICTED_TPOT = "outrider_predicted_tpot_seconds"
SPECULATIVE_TOKENS = "outrider_speculative_tokens"
SCHEDULE_TOKENS = "outrider_schedule_speculative_tokens"
ACCEPTANCE_FLOOR = "outrider_acceptance_length_floor"
TPOT_OBJECTIVE = "outrider_tpot_objective_seconds"
EXPORTED: tuple[str, ...] = (
    *(BASELINE_TPOT, CELL_TPOT, CELL_THROUGHPUT, CELL_TOKENS_PER_STEP, CELL_ENDED, PREDICTED_TPOT),
    *(SPECULATIVE_TOKENS, SCHEDULE_TOKENS, ACCEPTANCE_FLOOR, TPOT_OBJECTIVE),
)

# On the /metrics of engines whose variant is `auto`: what the controller in their scheduler does.
UTILITY_K = "outrider_utility_k"
UTILITY_RATIO = "outrider_utility_ratio"
UTILITY_PHASE = "outrider_utility_phase"
UTILITY_SWITCHES = "outrider_utility_switches_total"
UTILITY_TESTS = "outrider_utility_tests_total"
UTILITY_OVERHEAD = "outrider_utility_overhead_seconds_total"
UTILITY_FAULT = "outrider_utility_fault"
UTILITY_EXPORTED = "outrider_utility_exported"

BY = "stack, variant"
WINDOW = "1m"  # of rates; at a scrape every 10 s that is 6 readings
SLOW_WINDOW = "1h"  # of burn rates


def rate_of(figure: str) -> str:
    """Recorded rate of a counter, per second."""
    return f"outrider:{figure}:rate{WINDOW}"


def quantile_of(who: str, figure: str, percent: int) -> str:
    """Recorded percentile of a latency, in seconds; `who` is `engine` or `client`."""
    return f"outrider:{who}_{figure}_seconds:p{percent}"


def mean_of(who: str, figure: str) -> str:
    """Recorded mean of a latency, in seconds."""
    return f"outrider:{who}_{figure}_seconds:mean"


RUNNING = "outrider:requests_running"
WAITING = "outrider:requests_waiting"
KV_USAGE = "outrider:kv_cache_usage:ratio"
START_TIME = "outrider:start_time_seconds"
BUSY = "outrider:requests_running:busy"
CONCURRENCY = "outrider:concurrency:mean1m"
BAND = "outrider:concurrency:band"
AL = "outrider:acceptance_length"
ACCEPTED_SHARE = "outrider:accepted_share:ratio"
POSITION = "outrider:acceptance_by_position:ratio"
POSITION_CONDITIONAL = "outrider:acceptance_by_position_conditional:ratio"
WASTE = "outrider:draft_waste:rate1m"
WASTE_SHARE = "outrider:draft_waste:ratio"
STEPS = "outrider:steps:rate1m"
DRAFTED_SHARE = "outrider:drafted_steps:ratio"
TOKENS_PER_STEP = "outrider:tokens_per_step"
BASELINE_LIVE = "outrider:baseline_tpot_seconds"
SPEEDUP = "outrider:speedup:ratio"
STEP_COST = "outrider:step_cost:ratio"
BREAK_EVEN = "outrider:break_even_acceptance_length"
ACCEPTANCE_MARGIN = "outrider:acceptance_margin"
PREFIX_HITS = "outrider:prefix_hits:ratio"
FAILED_SHARE = "outrider:client_failed:ratio"
REPETITIVE_SHARE = "outrider:client_repetitive:ratio"
SLO_MISS = "outrider:tpot_slo_miss:ratio"
