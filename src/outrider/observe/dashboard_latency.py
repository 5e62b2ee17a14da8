"""The dashboard of waiting: the engine's clock beside the client's."""

from __future__ import annotations

from outrider.observe import series as s
from outrider.observe.panels import SWITCHES, VARIABLES, Dashboard, Panel, Query, Row, chosen
from outrider.observe.rules import PERCENTS


def latency() -> Dashboard:
    """What users wait for, seen from both ends."""
    return Dashboard(
        uid="outrider-latency",
        title="Outrider: latency",
        description="What users wait for: the engine's own clock beside that of the load client.",
        variables=VARIABLES,
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
