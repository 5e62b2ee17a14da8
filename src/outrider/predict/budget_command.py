"""`outrider predict budget`: step time against an expert budget."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import plotly.graph_objects as go
import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from outrider.predict.budget import BudgetStep, budget_steps
from outrider.predict.observations import read_observations
from outrider.predict.session import open_session
from outrider.predict.view import fit_text
from outrider.stack import find_stack

if TYPE_CHECKING:
    from collections.abc import Sequence

_SHARES = (0.75, 0.5, 0.33, 0.25, 0.17)


def predict_budget(
    stack: Annotated[str, typer.Argument(help="Name of a shipped stack, or a YAML file.")],
    experts: Annotated[
        list[int] | None, typer.Option("--experts", min=1, help="B; may be repeated. Default: shares of all.")
    ] = None,
    cells: Annotated[Path | None, typer.Option(help="Measured cells to fit to.")] = None,
    variant: Annotated[str, typer.Option(help="Whose drafter a step of k > 0 runs.")] = "eagle3",
    k: Annotated[int, typer.Option(min=0, help="Speculative tokens; 0 is plain decoding.")] = 3,
    context: Annotated[int, typer.Option(min=0, help="Tokens in the cache.")] = 1024,
    concurrency: Annotated[
        list[int] | None, typer.Option("--concurrency", min=1, help="May be repeated. Default: the stack's.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Write a chart of step time against B (HTML).")] = None,
    json_to: Annotated[
        str | None, typer.Option("--json", metavar="PATH", help="Write JSON; - is standard output.")
    ] = None,
) -> None:
    """Predict what an expert budget saves. It is lossy: what it does to answers must be measured."""
    chosen = find_stack(stack)
    session = open_session(chosen, read_observations(cells, chosen) if cells else [])
    machine = session.fit.machine
    budgets = experts or [max(round(share * machine.experts), machine.per_token) for share in _SHARES]
    found = budget_steps(
        session.fit,
        budgets,
        batches=concurrency or list(chosen.campaign.concurrency),
        k=k,
        context=float(context),
        draft_bytes=session.draft_bytes(variant) if k else 0.0,
    )
    if json_to:
        text = json.dumps({"stack": chosen.name, "lossy": True, "steps": [asdict(one) for one in found]}, indent=2)
        if json_to == "-":
            sys.stdout.write(text + "\n")
        else:
            Path(json_to).write_text(text + "\n", encoding="utf-8")
    if plot:
        _plot(found, chosen.title).write_html(plot, include_plotlyjs=True)
    if json_to == "-":
        return
    console = Console(highlight=False)
    console.print(budget_table(found, f"{chosen.name}, k={k}, context {context}: predicted, lossy"))
    console.print(fit_text(session.fit), soft_wrap=True)


def budget_table(found: Sequence[BudgetStep], title: str) -> Table:
    """One row a batch and B."""
    table = Table(title=title, title_justify="left", header_style="bold", box=SIMPLE_HEAD, padding=0)
    for column in ("users", "B", "read a layer", "step ms, 95 %", "of the step without", "in experts"):
        table.add_column(column, justify="right", no_wrap=True)
    batch = None
    for one in found:
        if batch not in {None, one.batch}:
            table.add_section()
        batch = one.batch
        read = one.union if one.experts is None else min(one.union, one.experts)
        ratio = "" if one.experts is None else f"{one.ratio.mid:.0%} {one.ratio.low:.0%}-{one.ratio.high:.0%}"
        table.add_row(
            str(one.batch),
            "none" if one.experts is None else str(one.experts),
            f"{read:.0f}",
            f"{one.step_s.mid * 1000:.2f} {one.step_s.low * 1000:.2f}-{one.step_s.high * 1000:.2f}",
            ratio,
            f"{one.experts_share:.0%}",
        )
    return table


def _plot(found: Sequence[BudgetStep], title: str) -> go.Figure:
    figure = go.Figure()
    for batch in dict.fromkeys(one.batch for one in found):
        line = sorted(
            (one for one in found if one.batch == batch and one.experts is not None), key=lambda o: o.experts or 0
        )
        figure.add_scatter(
            x=[one.experts for one in line],
            y=[one.step_s.mid * 1000 for one in line],
            error_y={
                "type": "data",
                "array": [(one.step_s.high - one.step_s.mid) * 1000 for one in line],
                "arrayminus": [(one.step_s.mid - one.step_s.low) * 1000 for one in line],
            },
            name=f"{batch} users",
        )
    figure.update_layout(
        title=f"{title}: step time against an expert budget (lossy), predicted",
        xaxis_title="B, experts a layer and step",
        yaxis_title="step, ms",
        yaxis_rangemode="tozero",
        template="plotly_white",
    )
    return figure
