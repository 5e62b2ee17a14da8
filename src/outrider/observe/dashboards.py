"""The five dashboards, each for one question."""

from __future__ import annotations

from outrider.observe import series as s
from outrider.observe.dashboard_campaign import campaign
from outrider.observe.dashboard_latency import latency
from outrider.observe.dashboard_node import node
from outrider.observe.dashboard_speculation import speculation
from outrider.observe.panels import (
    NO_BASELINE,
    NOT_SPECULATING,
    SWITCHES,
    VARIABLES,
    Dashboard,
    Panel,
    Query,
    Row,
    chosen,
)


def dashboards() -> tuple[Dashboard, ...]:
    """All of them."""
    return overview(), speculation(), latency(), campaign(), node()


def overview() -> Dashboard:
    """Is speculation paying now?"""
    return Dashboard(
        uid="outrider-overview",
        title="Outrider: overview",
        description="Is speculation paying now? Live speedup against the recorded baseline, and what it rests on.",
        variables=VARIABLES,
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
                        kind="number", width=5, limits=(0.97, 1.03), empty=NO_BASELINE, decimals=2,
                    ),
                    Panel(
                        "Acceptance length",
                        "Tokens that a drafted step yields: 1 plus accepted over drafts. Its limit is k + 1.",
                        (Query(chosen(s.AL)),),
                        kind="number", width=5, empty=NOT_SPECULATING, decimals=2,
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
                        width=12, limits=(0.97, 1.03), empty=NO_BASELINE, decimals=2,
                    ),
                    Panel(
                        "Acceptance length and what it takes to break even",
                        "While a variant's acceptance length is above its break-even line, it is faster than plain "
                        "decoding. The line moves with load, because a speculative step costs more or less there.",
                        (
                            Query(chosen(s.AL), "{{variant}}: acceptance length"),
                            Query(chosen(s.BREAK_EVEN), "{{variant}}: break-even"),
                        ),
                        width=12, empty=NOT_SPECULATING, decimals=2,
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
