"""The five dashboards, each for one question."""

from __future__ import annotations

from outrider.observe import series as s
from outrider.observe.dashboard_node import node
from outrider.observe.panels import NO_TRAFFIC, SWITCHES, Dashboard, Mark, Panel, Query, Row, chosen
from outrider.observe.rules import PERCENTS

_VARIABLES = {
    "stack": f"label_values({s.RUNNING}, stack)",
    "variant": f'label_values({s.RUNNING}{{stack=~"$stack"}}, variant)',
}
_NO_BASELINE = "no traffic, or no baseline recorded at this load"
_NOT_SPECULATING = "no traffic, or not speculating"
_CELLS = "stack, variant, workload, band"


def dashboards() -> tuple[Dashboard, ...]:
    """All of them."""
    return overview(), speculation(), latency(), campaign(), node()


def overview() -> Dashboard:
    """Is speculation paying now?"""
    return Dashboard(
        uid="outrider-overview",
        title="Outrider: overview",
        description="Is speculation paying now? Live speedup against the recorded baseline, and what it rests on.",
        variables=_VARIABLES,
        marks=(SWITCHES,),
        rows=(
            Row(
                "Now",
                (
                    Panel(
                        "Live speedup",
                        "Recorded baseline's time per output token at today's concurrency, over the live one. Above 1, "
                        "speculation pays. For baseline itself it says whether the node is as fast as when recorded.",
                        (Query(chosen(s.SPEEDUP)),),
                        kind="number", width=5, limits=(0.97, 1.03), empty=_NO_BASELINE, decimals=2,
                    ),
                    Panel(
                        "Acceptance length",
                        "Tokens that a drafted step yields: 1 plus accepted over drafts. Its limit is k + 1.",
                        (Query(chosen(s.AL)),),
                        kind="number", width=5, empty=_NOT_SPECULATING, decimals=2,
                    ),
                    Panel(
                        "TPOT, median",
                        "Median time per output token of the last minute's requests, as the engine sees it.",
                        (Query(chosen(s.quantile_of("engine", "tpot", 50))),),
                        unit="s", kind="number", width=5,
                    ),
                    Panel(
                        "Output",
                        "Output tokens per second of all users together.",
                        (Query(chosen(s.rate_of("generation_tokens"))),),
                        unit="short", kind="number", width=5, decimals=0,
                    ),
                    Panel(
                        "Firing alerts",
                        "Alerts that hold now. Their runbooks are named in Alertmanager.",
                        (Query('count(ALERTS{alertstate="firing"}) or vector(0)', "alerts"),),
                        kind="number", width=4, limits=(1, 1), high_is_bad=True, empty="none", decimals=0,
                    ),
                ),
            ),
            Row(
                "Does it pay?",
                (
                    Panel(
                        "Live speedup",
                        "Baseline's recorded TPOT at the same concurrency band over the live TPOT. The dashed lines "
                        "are 3 % around 1: between them, nothing is won or lost.",
                        (Query(chosen(s.SPEEDUP)),),
                        width=12, limits=(0.97, 1.03), empty=_NO_BASELINE, decimals=2,
                    ),
                    Panel(
                        "Acceptance length and what it takes to break even",
                        "While a variant's acceptance length is above its break-even line, it is faster than plain "
                        "decoding. The line moves with load, because a speculative step costs more or less there.",
                        (
                            Query(chosen(s.AL), "{{variant}}: acceptance length"),
                            Query(chosen(s.BREAK_EVEN), "{{variant}}: break-even"),
                        ),
                        width=12, empty=_NOT_SPECULATING, decimals=2,
                    ),
                ),
            ),
            Row(
                "Load",
                (
                    Panel(
                        "TPOT against the recorded baseline",
                        "Mean time per output token, live and as it was recorded for baseline at this concurrency.",
                        (
                            Query(chosen(s.mean_of("engine", "tpot")), "{{variant}}: live"),
                            Query(chosen(s.BASELINE_LIVE), "baseline recorded, {{band}} users"),
                        ),
                        unit="s",
                    ),
                    Panel(
                        "Output tokens per second",
                        "Of all users together.",
                        (Query(chosen(s.rate_of("generation_tokens"))),),
                        decimals=0,
                    ),
                    Panel(
                        "Requests",
                        "Running in the batch, and waiting for room in it.",
                        (
                            Query(chosen(s.RUNNING), "{{variant}}: running"),
                            Query(chosen(s.WAITING), "{{variant}}: waiting"),
                        ),
                        low=0, empty="no engine",
                    ),
                ),
            ),
        ),
    )  # fmt: skip


def speculation() -> Dashboard:
    """What the drafter does."""
    return Dashboard(
        uid="outrider-speculation",
        title="Outrider: speculation",
        description="What the drafter proposes, what the target keeps of it, and what that costs.",
        variables=_VARIABLES,
        marks=(SWITCHES,),
        rows=(
            Row(
                "Acceptance",
                (
                    Panel(
                        "Acceptance length",
                        "Tokens per drafted step, with the floor under which the drafter is not what it should be.",
                        (
                            Query(chosen(s.AL)),
                            Query(chosen(s.ACCEPTANCE_FLOOR), "{{variant}}: floor"),
                        ),
                        empty=_NOT_SPECULATING, decimals=2,
                    ),
                    Panel(
                        "Accepted at each position",
                        "Of all drafts, the share that was accepted at this position (unconditional). It can only fall "
                        "from position to position.",
                        (Query(chosen(s.POSITION), "{{variant}}: {{position}}"),),
                        unit="percentunit", low=0, high=1, empty=_NOT_SPECULATING,
                    ),
                    Panel(
                        "Accepted, given the position before",
                        "Of the drafts that were accepted up to the position before, the share accepted here as well. "
                        "Where it drops, a smaller k loses little.",
                        (Query(chosen(s.POSITION_CONDITIONAL), "{{variant}}: {{position}}"),),
                        unit="percentunit", low=0, high=1, empty=_NOT_SPECULATING,
                    ),
                ),
            ),
            Row(
                "Cost",
                (
                    Panel(
                        "Tokens per step",
                        "Tokens that a request gains in a step, steps without drafts among them; 1 is plain decoding.",
                        (Query(chosen(s.TOKENS_PER_STEP)),),
                        decimals=2,
                    ),
                    Panel(
                        "Step-cost ratio",
                        "Time of a step with speculation over time of a plain one at the same concurrency. Tokens per "
                        "step must be above it.",
                        (Query(chosen(s.STEP_COST)),),
                        empty=_NO_BASELINE, decimals=2,
                    ),
                    Panel(
                        "Acceptance to spare",
                        "Acceptance length minus its break-even. Below 0, plain decoding is faster.",
                        (Query(chosen(s.ACCEPTANCE_MARGIN)),),
                        limits=(-0.05, 0.05), empty=_NO_BASELINE, decimals=2,
                    ),
                    Panel(
                        "Draft waste",
                        "Drafted tokens per second that the target threw away.",
                        (Query(chosen(s.WASTE)),),
                        empty=_NOT_SPECULATING, decimals=0,
                    ),
                    Panel(
                        "Share of drafts wasted",
                        "Of the drafted tokens, the share that the target threw away.",
                        (Query(chosen(s.WASTE_SHARE)),),
                        unit="percentunit", low=0, high=1, empty=_NOT_SPECULATING,
                    ),
                    Panel(
                        "Share of steps with a draft",
                        "n-gram methods and schedules do not draft at every step; a static head does.",
                        (Query(chosen(s.DRAFTED_SHARE)),),
                        unit="percentunit", low=0, high=1, empty=_NOT_SPECULATING,
                    ),
                ),
            ),
            Row(
                "Schedule",
                (
                    Panel(
                        "k by concurrency",
                        "What the stack's schedule asks for in each band of concurrency; its k everywhere where it has "
                        "none.",
                        (Query(chosen(s.SCHEDULE_TOKENS), "{{variant}}: {{band}} users", instant=True),),
                        kind="bars", width=12, low=0, empty="the exporter of recorded cells does not run", decimals=0,
                    ),
                    Panel(
                        "Concurrency that requests meet",
                        "Mean size of the batch while it is not empty, over a minute: what the schedule and the "
                        "baseline's band are looked up by.",
                        (Query(chosen(s.CONCURRENCY)),),
                        width=12, low=0, decimals=1,
                    ),
                ),
            ),
        ),
    )  # fmt: skip


def latency() -> Dashboard:
    """What users wait for, seen from both ends."""
    return Dashboard(
        uid="outrider-latency",
        title="Outrider: latency",
        description="What users wait for: the engine's own clock beside that of the load client.",
        variables=_VARIABLES,
        marks=(SWITCHES,),
        rows=(
            Row("Time per output token", _latencies("tpot", "tpot", "Time per output token", "TPOT")),
            Row("Time to first token", _latencies("ttft", "ttft", "Time to first token", "TTFT")),
            Row("Between outputs", _latencies("itl", "icl", "Time between outputs", "between outputs")),
            Row("Whole requests", _latencies("e2e", "e2e", "Time of a whole request", "whole request")),
            Row(
                "Is it to be believed?",
                (
                    Panel(
                        "Requests slower than the objective",
                        "Share of requests whose TPOT was above the objective given to `outrider observe export`.",
                        (Query(chosen(s.SLO_MISS), "{{variant}}, {{window}}"),),
                        unit="percentunit", low=0, high=1, limits=(0.05, 0.3), high_is_bad=True,
                        empty="no traffic, or no objective was given",
                    ),
                    Panel(
                        "Failed requests",
                        "Share of the client's requests that did not end well; above 5 % a cell is no measurement.",
                        (Query(chosen(s.FAILED_SHARE)),),
                        unit="percentunit", low=0, limits=(0.01, 0.05), high_is_bad=True,
                    ),
                    Panel(
                        "Lateness of the client",
                        "How late the client's event loop last woke up. It is part of every latency that it reports.",
                        (Query(chosen("outrider_client_event_loop_lag_seconds")),),
                        unit="s", limits=(0.005, 0.05), high_is_bad=True,
                    ),
                ),
            ),
        ),
    )  # fmt: skip


def _latencies(engine: str, client: str, what: str, short: str) -> tuple[Panel, ...]:
    """Percentiles of both ends, and what lies between their means."""
    apart = f"{chosen(s.mean_of('client', client))} - on ({s.BY}) {chosen(s.mean_of('engine', engine))}"
    note = " Several tokens can arrive in one output under speculation: this is not TPOT." if engine == "itl" else ""

    def of(who: str, figure: str) -> tuple[Query, ...]:
        return tuple(Query(chosen(s.quantile_of(who, figure, p)), f"{{{{variant}}}}: p{p}") for p in PERCENTS)

    return (
        Panel(f"{short}, engine", f"{what}, as the engine counts it.{note}", of("engine", engine), unit="s"),
        Panel(
            f"{short}, client",
            f"{what}, as the load client sees it.{note}",
            of("client", client),
            unit="s",
            empty="no load client exports its figures (--metrics-port, --live)",
        ),
        Panel(
            f"{short}, client - engine",
            "Difference of the means: network, server front end, and the client itself.",
            (Query(apart),),
            unit="s",
            empty="no load client exports its figures (--metrics-port, --live)",
        ),
    )


def campaign() -> Dashboard:
    """Measured cells, beside what runs and what was predicted."""

    def cells(name: str, *, variant: bool = True) -> str:
        labels = ['stack=~"$stack"', 'workload=~"$workload"', 'band=~"$band"']
        labels += ['variant=~"$variant"'] if variant else []
        return f"{name}{{{', '.join(labels)}}}"

    ended = Mark(
        "cells", f"{s.CELL_ENDED} * 1000", "{{variant}}, {{workload}}, {{concurrency}} users: {{status}}", "purple"
    )
    return Dashboard(
        uid="outrider-campaign",
        title="Outrider: campaign",
        description="What was measured, cell by cell; beside it what runs now, and what the model predicts.",
        variables=_VARIABLES
        | {
            "workload": f'label_values({s.BASELINE_TPOT}{{stack=~"$stack"}}, workload)',
            "band": f'label_values({s.BASELINE_TPOT}{{stack=~"$stack"}}, band)',
        },
        marks=(SWITCHES, ended),
        since="now-3h",
        rows=(
            Row(
                "Baseline, variants, prediction",
                (
                    Panel(
                        "TPOT: recorded, predicted, live",
                        "Mean time per output token at the chosen workload and band: baseline's and the variants' "
                        "recorded cells, what the model says there, and what the client sees now.",
                        (
                            Query(cells(s.BASELINE_TPOT, variant=False), "baseline recorded: {{workload}}, {{band}}"),
                            Query(cells(s.CELL_TPOT), "{{variant}} recorded: {{workload}}, {{band}}"),
                            Query(cells(s.PREDICTED_TPOT), "{{variant}} predicted: {{workload}}, {{band}}"),
                            Query(chosen(s.mean_of("client", "tpot")), "{{variant}} live"),
                        ),
                        unit="s", width=24, empty="the exporter of recorded cells does not run",
                    ),
                ),
            ),
            Row(
                "Cells",
                (
                    Panel(
                        "Speedup of recorded cells",
                        "Baseline's recorded TPOT over the variant's, at the same workload and band.",
                        (
                            Query(
                                f"{cells(s.BASELINE_TPOT, variant=False)} / on (stack, workload, band) "
                                f"group_right () ({cells(s.CELL_TPOT)} > 0)",
                                "{{variant}}: {{workload}}, {{band}} users",
                                instant=True,
                            ),
                        ),
                        kind="bars", width=12, limits=(0.97, 1.03), empty="no variant has been measured", decimals=2,
                    ),
                    Panel(
                        "Output of recorded cells",
                        "Output tokens per second of all users together.",
                        (Query(cells(s.CELL_THROUGHPUT), "{{variant}}: {{workload}}, {{band}} users", instant=True),),
                        kind="bars", width=12, empty="nothing has been measured", decimals=0,
                    ),
                    Panel(
                        "Tokens per step of recorded cells",
                        "From the engine's counters over each cell.",
                        (
                            Query(
                                f"max by ({_CELLS}) ({cells(s.CELL_TOKENS_PER_STEP)})",
                                "{{variant}}: {{workload}}, {{band}} users",
                                instant=True,
                            ),
                        ),
                        kind="table", width=24, empty="nothing has been measured", decimals=2,
                    ),
                ),
            ),
            Row(
                "Now",
                (
                    Panel(
                        "Requests of the load client",
                        "Under way now, by workload: which cell is being measured.",
                        (
                            Query(
                                chosen("outrider_client_in_flight"),
                                "{{variant}}: {{workload}}, {{concurrency}} users",
                            ),
                        ),
                        width=12, low=0, empty=NO_TRAFFIC, decimals=0,
                    ),
                    Panel(
                        "Output seen by the client",
                        "Tokens per second that have arrived.",
                        (Query(chosen(s.rate_of("client_output_tokens"))),),
                        width=12, low=0, decimals=0,
                    ),
                ),
            ),
        ),
    )  # fmt: skip
