"""The dashboard of the drafter: what it proposes, what is kept of it, and what that costs."""

from __future__ import annotations

from outrider.observe import series as s
from outrider.observe.panels import (
    NO_BASELINE,
    NOT_CHOOSING,
    NOT_SPECULATING,
    SWITCHES,
    VARIABLES,
    Dashboard,
    Panel,
    Query,
    Row,
    chosen,
)


def speculation() -> Dashboard:
    """What the drafter does."""
    return Dashboard(
        uid="outrider-speculation",
        title="Outrider: speculation",
        description="What the drafter proposes, what the target keeps of it, and what that costs.",
        variables=VARIABLES,
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
                        empty=NOT_SPECULATING, decimals=2,
                    ),
                    Panel(
                        "Accepted at each position",
                        "Of all drafts, the share that was accepted at this position (unconditional). It can only fall "
                        "from position to position.",
                        (Query(chosen(s.POSITION), "{{variant}}: {{position}}"),),
                        unit="percentunit", low=0, high=1, empty=NOT_SPECULATING,
                    ),
                    Panel(
                        "Accepted, given the position before",
                        "Of the drafts that were accepted up to the position before, the share accepted here as well. "
                        "Where it drops, a smaller k loses little.",
                        (Query(chosen(s.POSITION_CONDITIONAL), "{{variant}}: {{position}}"),),
                        unit="percentunit", low=0, high=1, empty=NOT_SPECULATING,
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
                        empty=NO_BASELINE, decimals=2,
                    ),
                    Panel(
                        "Acceptance to spare",
                        "Acceptance length minus its break-even. Below 0, plain decoding is faster.",
                        (Query(chosen(s.ACCEPTANCE_MARGIN)),),
                        limits=(-0.05, 0.05), empty=NO_BASELINE, decimals=2,
                    ),
                    Panel(
                        "Draft waste",
                        "Drafted tokens per second that the target threw away.",
                        (Query(chosen(s.WASTE)),),
                        empty=NOT_SPECULATING, decimals=0,
                    ),
                    Panel(
                        "Share of drafts wasted",
                        "Of the drafted tokens, the share that the target threw away.",
                        (Query(chosen(s.WASTE_SHARE)),),
                        unit="percentunit", low=0, high=1, empty=NOT_SPECULATING,
                    ),
                    Panel(
                        "Share of steps with a draft",
                        "n-gram methods and schedules do not draft at every step; a static head does.",
                        (Query(chosen(s.DRAFTED_SHARE)),),
                        unit="percentunit", low=0, high=1, empty=NOT_SPECULATING,
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
            _chosen_while_it_runs(),
        ),
    )  # fmt: skip


def _chosen_while_it_runs() -> Row:
    """What the controller of an `auto` variant does; docs/tuning-itself.md."""
    by_batch = f"{s.BY}, batch"
    testing = chosen(s.UTILITY_PHASE, 'phase="test"')
    return Row(
        "k chosen while it runs",
        (
            Panel(
                "k in force",
                "What the controller has the engine draft at each batch size. A batch size that was never used has no "
                "line.",
                (Query(chosen(s.UTILITY_K), "{{variant}}: batch {{batch}}"),),
                low=0, empty=NOT_CHOOSING, decimals=0,
            ),
            Panel(
                "Utility by k",
                "Speed at this k against k = 0 at the same batch size: tokens per step over step-cost ratio. The "
                "dashed lines are 3 % around 1: below them, drafting loses.",
                (Query(chosen(s.UTILITY_RATIO, 'k!="0"'), "{{variant}}: batch {{batch}}, k={{k}}"),),
                limits=(0.97, 1.03), empty=NOT_CHOOSING, decimals=2,
            ),
            Panel(
                "Share of time in test phases",
                "How often a scrape of the last five minutes met a batch size while another k was tried; the rest is "
                "set phases. Much of it means that little is known yet, or that the traffic changes all the time.",
                (Query(f"avg_over_time({testing}[5m])", "{{variant}}: batch {{batch}}"),),
                unit="percentunit", low=0, high=1, empty=NOT_CHOOSING,
            ),
            Panel(
                "Changes of k",
                "Within five minutes, of the k in force. The engine's log says why for each.",
                (
                    Query(
                        f"sum by ({by_batch}) (increase({chosen(s.UTILITY_SWITCHES)}[5m]))",
                        "{{variant}}: batch {{batch}}",
                    ),
                ),
                low=0, empty=NOT_CHOOSING, decimals=0,
            ),
            Panel(
                "Tests begun",
                "Within five minutes. They become rarer while nothing changes, and never cease.",
                (
                    Query(
                        f"sum by ({by_batch}) (increase({chosen(s.UTILITY_TESTS)}[5m]))",
                        "{{variant}}: batch {{batch}}",
                    ),
                ),
                low=0, empty=NOT_CHOOSING, decimals=0,
            ),
            Panel(
                "Controller's own time",
                "CPU time of the controller in the engine core, as a share of the time. Promised: below 0.5 %.",
                (Query(f"sum by ({s.BY}) (rate({chosen(s.UTILITY_OVERHEAD)}[{s.WINDOW}]))"),),
                unit="percentunit", low=0, empty=NOT_CHOOSING, decimals=3,
            ),
            Panel(
                "Controller faults",
                "1: the controller gave up, and the schedule that the engine was started with is in force. 0: it "
                "works.",
                (Query(chosen(s.UTILITY_FAULT)),),
                kind="number", width=24, limits=(1, 1), high_is_bad=True, empty=NOT_CHOOSING, decimals=0,
            ),
        ),
    )  # fmt: skip
