"""Recording rules: what dashboards, alerts and the terminal view mean by each figure.

Rates are over a minute. A figure that cannot be computed yet is absent: no series is ever NaN, and nothing reads 0 %
because nobody has asked anything. Counters of several engine cores are summed, and so are several instances of one
variant; a restart is seen by `rate` as what it is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from outrider.load.exporter import PREFIX as CLIENT
from outrider.observe import series as s
from outrider.observe.bands import band_expression
from outrider.observe.promql import either, of_engines, quantile, ratio, where

if TYPE_CHECKING:
    from collections.abc import Mapping

# Draft positions whose acceptance is also given by the position before; methods with more propose blocks.
POSITIONS = 16
PERCENTS = (50, 95, 99)
ENGINE_LATENCIES = ("ttft", "tpot", "itl", "e2e")
CLIENT_LATENCIES = ("ttft", "tpot", "icl", "e2e")
_COUNTERS = (
    *("generation_tokens", "prompt_tokens", "first_tokens", "finished", "preemptions", "prefix_queries"),
    *("prefix_hits", "drafts", "draft_tokens", "accepted_tokens"),
)


@dataclass(frozen=True, slots=True)
class Rule:
    """One recorded series.

    Attributes:
        record: its name.
        expr: PromQL.
        labels: added to it.
    """

    record: str
    expr: str
    labels: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As a rule file says it."""
        return {"record": self.record, "expr": self.expr} | ({"labels": dict(self.labels)} if self.labels else {})


def traffic_rules() -> list[Rule]:
    """Rates and states of the engines, of whichever make."""
    return [
        *(Rule(s.rate_of(name), of_engines(name)) for name in _COUNTERS),
        Rule(s.RUNNING, of_engines("running")),
        Rule(s.WAITING, of_engines("waiting")),
        Rule(s.KV_USAGE, of_engines("kv_cache_usage")),
        Rule(s.START_TIME, of_engines("start_time")),
        Rule(s.PREFIX_HITS, ratio(s.rate_of("prefix_hits"), s.rate_of("prefix_queries"))),
        # Idle moments would pull the mean below the batch that requests really meet.
        Rule(s.BUSY, f"{s.RUNNING} > 0"),
        Rule(s.CONCURRENCY, f"avg_over_time({s.BUSY}[{s.WINDOW}])"),
    ]


def latency_rules() -> list[Rule]:
    """Percentiles and means, as the engine sees them and as the client does."""
    rules: list[Rule] = []
    for figure in ENGINE_LATENCIES:
        count = of_engines(f"{figure}_count")
        rules += _latency("engine", figure, of_engines(f"{figure}_bucket"), of_engines(f"{figure}_sum"), count)
    for figure in CLIENT_LATENCIES:
        parts = (_client_rate(f"{figure}_seconds_{part}") for part in ("bucket", "sum", "count"))
        rules += _latency("client", figure, *parts)
    requests = _client_rate("requests_total")
    return [
        *rules,
        Rule(s.rate_of("client_output_tokens"), _client_rate("output_tokens_total")),
        Rule(s.FAILED_SHARE, ratio(_client_rate("failed_requests_total"), requests)),
        Rule(s.REPETITIVE_SHARE, ratio(_client_rate("repetitive_requests_total"), requests)),
    ]


def _latency(who: str, figure: str, buckets: str, total: str, count: str) -> list[Rule]:
    counted = f"outrider:{who}_{figure}_count:rate{s.WINDOW}"
    recorded = f"outrider:{who}_{figure}_seconds_bucket:rate{s.WINDOW}"
    return [
        Rule(counted, count),
        Rule(recorded, buckets),
        *(Rule(s.quantile_of(who, figure, p), quantile(p / 100, recorded, counted)) for p in PERCENTS),
        Rule(s.mean_of(who, figure), ratio(f"({total})", counted)),
    ]


def _client_rate(name: str) -> str:
    le = "le, " if name.endswith("_bucket") else ""
    return f"sum by ({le}{s.BY}) (rate({CLIENT}{name}[{s.WINDOW}]))"


def speculation_rules() -> list[Rule]:
    """Acceptance, waste, and tokens a step."""
    drafts, drafted, accepted = (s.rate_of(name) for name in ("drafts", "draft_tokens", "accepted_tokens"))
    generated, first = s.rate_of("generation_tokens"), s.rate_of("first_tokens")
    decoded = f"({generated} - on ({s.BY}) {first})"
    # Without speculation nothing is accepted, and each step yields one token.
    kept = f"({accepted} or on ({s.BY}) {generated} * 0)"
    return [
        Rule(s.AL, f"1 + {ratio(accepted, drafts)}"),
        Rule(s.ACCEPTED_SHARE, ratio(accepted, drafted)),
        Rule(s.WASTE, f"clamp_min({drafted} - on ({s.BY}) {accepted}, 0)"),
        Rule(s.WASTE_SHARE, ratio(s.WASTE, drafted)),
        Rule(s.rate_of("accepted_at_position"), of_engines("accepted_per_pos")),
        Rule(s.POSITION, f"{s.rate_of('accepted_at_position')} / on ({s.BY}) group_left () ({drafts} > 0)"),
        Rule(s.POSITION_CONDITIONAL, _conditional(drafts)),
        Rule(s.STEPS, f"({decoded} - on ({s.BY}) {kept}) > 0"),
        Rule(s.TOKENS_PER_STEP, f"({decoded} > 0) / on ({s.BY}) {s.STEPS}"),
        Rule(s.DRAFTED_SHARE, f"clamp_max({ratio(drafts, s.STEPS)}, 1)"),
    ]


def _conditional(drafts: str) -> str:
    """Accepted at a position / accepted at the one before, which for the first one is the drafts."""
    at = s.rate_of("accepted_at_position")
    before = [f'label_replace({drafts}, "position", "0", "", "")']
    before += [
        f'label_replace({at}{{position="{position - 1}"}}, "position", "{position}", "", "")'
        for position in range(1, POSITIONS)
    ]
    on = f"{s.BY}, position"
    return ratio(at, f"({either(before)})", on=on)


def comparison_rules() -> list[Rule]:
    """Live speedup against the recorded baseline, and what acceptance it takes to break even."""
    live = f"({s.BAND} * 0 + 1)"
    asked = f"(max by ({s.BY}, workload) ({CLIENT}in_flight) * 0 + 1)"
    of_band = f"avg by (stack, band) ({s.BASELINE_TPOT})"
    of_workload = f"avg by (stack, workload, band) ({s.BASELINE_TPOT})"
    # Who loads the engine may say with what; else any workload's baseline stands for it: plain decoding hardly differs.
    same = f"{asked} * on ({s.BY}) group_left (band) {live} * on (stack, workload, band) group_left () {of_workload}"
    tpot = s.mean_of("engine", "tpot")
    return [
        Rule(s.BAND, band_expression(s.CONCURRENCY)),
        Rule(
            s.BASELINE_LIVE,
            f"avg by ({s.BY}, band) ({same})\nor {live} * on (stack, band) group_left () {of_band}",
        ),
        Rule(s.SPEEDUP, f"max by ({s.BY}) ({s.BASELINE_LIVE}) / on ({s.BY}) ({tpot} > 0)"),
        Rule(s.STEP_COST, ratio(s.TOKENS_PER_STEP, s.SPEEDUP)),
        # tokens a step = 1 + (AL - 1) * share of steps that drafted; at break-even they equal the step-cost ratio.
        Rule(s.BREAK_EVEN, f"clamp_min(1 + {ratio(f'({s.STEP_COST} - 1)', s.DRAFTED_SHARE)}, 1)"),
        Rule(s.ACCEPTANCE_MARGIN, f"{s.AL} - on ({s.BY}) {s.BREAK_EVEN}"),
        *_objective_rules(),
    ]


def _objective_rules() -> list[Rule]:
    """Share of requests over the TPOT objective; the objective is a bound of the engine's own histogram."""
    within, count = "outrider:tpot_within_objective:rate1m", f"outrider:engine_tpot_count:rate{s.WINDOW}"
    buckets = f"outrider:engine_tpot_seconds_bucket:rate{s.WINDOW}"
    rules = [Rule(within, f"max by ({s.BY}) ({where(buckets, s.TPOT_OBJECTIVE, on=f'{s.BY}, le')})")]
    for window in ("5m", s.SLOW_WINDOW):
        good = f"sum_over_time({within}[{window}])"
        miss = f"1 - {ratio(good, f'sum_over_time({count}[{window}])')}"
        rules.append(Rule(s.SLO_MISS, f"clamp_min({miss}, 0)", {"window": window}))
    return rules


def groups() -> dict[str, list[Rule]]:
    """Rule groups in the order in which they build on each other.

    They are one chain, so they are one Prometheus group as well: rules of different groups are evaluated at different
    moments, and a speedup would be of two.
    """
    return {"outrider": [*traffic_rules(), *latency_rules(), *speculation_rules(), *comparison_rules()]}


def recorded_names() -> set[str]:
    """Names of all recorded series."""
    return {rule.record for rules in groups().values() for rule in rules}
