"""Predictions in the terminal and as a chart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import plotly.graph_objects as go
from rich.box import SIMPLE_HEAD
from rich.table import Table

from outrider.predict import factors as fx
from outrider.predict.model import PARTS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from outrider.predict.fit import Fit
    from outrider.predict.surface import Prediction
    from outrider.predict.validate import Score, Validation

# Okabe and Ito's palette, as in the report.
_COLOURS = dict(zip(PARTS, ("#7a828c", "#0072b2", "#009e73", "#d55e00", "#cc79a7", "#e69f00"), strict=True))


def predictions_table(predictions: Sequence[Prediction], title: str) -> Table:
    """One row a place."""
    table = Table(title=title, title_justify="left", header_style="bold", box=SIMPLE_HEAD, padding=0)
    for column in ("context", "users", "variant", "k", "step ms", "tok/step", "TPOT ms", "tok/s", "speedup, 95 %", ""):
        table.add_column(column, justify="left" if column in {"variant", ""} else "right", no_wrap=True)
    place = None
    for one in predictions:
        if place not in {None, (one.at.context, one.at.batch)}:
            table.add_section()
        place = (one.at.context, one.at.batch)
        gain = one.speedup
        table.add_row(
            f"{one.at.context:.0f}",
            str(one.at.batch),
            one.at.variant,
            str(one.at.k),
            f"{one.step_s.mid * 1000:.1f}",
            f"{one.tokens_per_step:.2f}",
            f"{one.tpot_s.mid * 1000:.1f}",
            f"{one.throughput_tok_s.mid:.0f}",
            f"{gain.mid:.2f} {gain.low:.2f}-{gain.high:.2f}" if gain else "",
            f"extrapolated {one.octaves_outside:.1f}x2" if one.extrapolated else "",
        )
    return table


def fit_text(fit: Fit) -> str:
    """What the model rests on, and factors that stand at a bound: these ask for a look."""
    lines = [f"fitted to: {fit.source}, {len(fit.cells)} cells; hardware: {fit.machine.source}"]
    if fit.cells:
        lines.append(f"scatter: plain {fit.plain_sd:.1%}, speculative {fit.speculative_sd:.1%}")
    own = fx.priors(fit.machine)
    values = {name: getattr(fit.factors, name) for name in own}
    lines.append("factors: " + ", ".join(f"{name} {value:.2f}" for name, value in values.items()))
    stuck = [n for n, p in own.items() if fit.cells and not p.low * 1.001 < values[n] < p.high * 0.999]
    if stuck:
        lines.append(f"at a bound, so the model's form is strained there: {', '.join(stuck)}")
    return "\n".join(lines)


def validation_table(found: Validation) -> Table:
    """The model beside the naive predictors."""
    table = Table(title=f"{found.model.n} test cells", title_justify="left", header_style="bold", box=SIMPLE_HEAD)
    for column in ("predictor", "speedup MAPE", "right choice", "beyond 3 % of parity", "regret"):
        table.add_column(column, justify="left" if column == "predictor" else "right")
    rows: list[tuple[str, Score | None]] = [
        ("model", found.model),
        ("nearest measured cell", found.nearest_cell),
        ("constant step-cost ratio", found.constant_ratio),
    ]
    for name, score in rows:
        if score is not None:
            beyond = "-" if score.choice_accuracy_beyond is None else f"{score.choice_accuracy_beyond:.1%}"
            table.add_row(name, f"{score.mape:.1%}", f"{score.choice_accuracy:.1%}", beyond, f"{score.regret:.2%}")
    return table


def write_plot(file: Path, predictions: Sequence[Prediction], title: str) -> None:
    """Where the time of a step goes, place by place, as one HTML file that needs no network."""
    names = [f"{p.at.variant} k={p.at.k}<br>{p.at.context:.0f} tokens, {p.at.batch} users" for p in predictions]
    figure = go.Figure()
    for part in PARTS:
        figure.add_trace(
            go.Bar(
                x=names,
                y=[p.parts_s[part] * 1000 for p in predictions],
                name=part,
                marker_color=_COLOURS[part],
                hovertemplate=f"{part}: %{{y:.2f}} ms<extra></extra>",
            )
        )
    figure.update_layout(
        barmode="stack", title=title, yaxis_title="ms a step", legend={"orientation": "h"}, height=560,
        plot_bgcolor="white", xaxis={"tickangle": -60},
    )  # fmt: skip
    figure.write_html(file, include_plotlyjs=True, full_html=True)
