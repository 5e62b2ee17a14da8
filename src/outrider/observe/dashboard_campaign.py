"""The dashboard of measuring: recorded cells, what runs now, and what the model says."""

from __future__ import annotations

from outrider.observe import series as s
from outrider.observe.panels import NO_TRAFFIC, SWITCHES, VARIABLES, Dashboard, Mark, Panel, Query, Row, chosen

_CELLS = "stack, variant, workload, band"


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
        variables=VARIABLES
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
