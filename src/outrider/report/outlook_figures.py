"""Charts of the outlook, as plotly figures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import plotly.graph_objects as go

from outrider.report.figures import FONT, GRID, INK

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from outrider.decide.options import Option
    from outrider.decide.places import PlaceChoice
    from outrider.report.outlook import Outlook, Row

_MARKS = {"measured": "circle", "fitted": "circle-open", "prior": "x-thin-open"}


def decision_map(rows: Sequence[Row], palette: Mapping[str, str]) -> go.Figure:
    """Context by concurrency, coloured by the winner, with its speedup and interval; dashed text was not measured."""
    loads = sorted({choice.batch for row in rows for choice in row.choices})
    winners = list(dict.fromkeys(["baseline", *(c.best.variant for row in rows for c in row.choices)]))
    by_place = {(row.label, c.batch): c for row in rows for c in row.choices}
    labels = [row.label for row in rows]
    grid = [[by_place.get((label, load)) for load in loads] for label in labels]
    steps = len(winners)
    scale = [[edge, palette[name]] for i, name in enumerate(winners) for edge in (i / steps, (i + 1) / steps)]
    figure = go.Figure(
        go.Heatmap(
            x=[str(load) for load in loads],
            y=labels,
            z=[[None if c is None else winners.index(c.best.variant) for c in line] for line in grid],
            text=[["" if c is None else _cell_text(c) for c in line] for line in grid],
            hovertext=[["" if c is None else f"{c.best.variant} k={c.best.k}: {c.why}" for c in line] for line in grid],
            texttemplate="%{text}",
            textfont={"size": 11.5, "color": "#fff"},
            hovertemplate="%{y}, %{x} users<br>%{hovertext}<extra></extra>",
            colorscale=scale,
            zmin=-0.5,
            zmax=steps - 0.5,
            showscale=False,
            xgap=2,
            ygap=2,
        )
    )
    for name in winners:
        figure.add_trace(
            go.Scatter(x=[None], y=[None], mode="markers", name=name,
                       marker={"symbol": "square", "size": 12, "color": palette[name]})
        )  # fmt: skip
    _style(figure, "concurrent users", "", height=110 + 46 * len(rows))
    figure.update_xaxes(type="category", showgrid=False, side="bottom")
    figure.update_yaxes(autorange="reversed", showgrid=False, automargin=True)
    return figure


def predicted_and_measured(outlook: Outlook, palette: Mapping[str, str]) -> go.Figure | None:
    """Speedups that a model predicted without seeing them, against what was measured; None with too few cells."""
    known = [(pair, p) for pair, p in outlook.checked if p.speedup is not None]
    if not known:
        return None
    figure = go.Figure()
    spans = [pair.speedup for pair, _ in known] + [p.speedup.mid for _, p in known if p.speedup]
    low, high = min(*spans, 0.95) * 0.95, max(*spans, 1.05) * 1.05
    figure.add_trace(go.Scatter(x=[low, high], y=[low, high], mode="lines", name="equal",
                                line={"color": INK, "width": 1, "dash": "dot"}, hoverinfo="skip"))  # fmt: skip
    for variant in dict.fromkeys(pair.speculative.variant for pair, _ in known):
        own = [(pair, p, p.speedup) for pair, p in known if pair.speculative.variant == variant and p.speedup]
        figure.add_trace(
            go.Scatter(
                x=[pair.speedup for pair, _, _ in own],
                y=[gain.mid for _, _, gain in own],
                error_y={
                    "type": "data",
                    "array": [gain.high - gain.mid for _, _, gain in own],
                    "arrayminus": [gain.mid - gain.low for _, _, gain in own],
                    "thickness": 1,
                    "width": 0,
                },
                mode="markers",
                name=variant,
                marker={"color": palette[variant], "size": 8},
                customdata=[[p.at.batch, p.at.context, p.at.context_ranks] for _, p, _ in own],
                hovertemplate="%{customdata[0]} users, %{customdata[1]:.0f} tokens, dcp %{customdata[2]}<br>"
                "measured %{x:.2f}x, predicted %{y:.2f}x<extra></extra>",
            )
        )
    figure.add_hline(y=1, line={"color": GRID, "width": 2})
    figure.add_vline(x=1, line={"color": GRID, "width": 2})
    _style(figure, "measured speedup", "predicted without it", height=420)
    return figure


def break_even(outlook: Outlook, palette: Mapping[str, str]) -> go.Figure | None:
    """Tokens a step that each place needs, and what it gets: below the line speculation loses."""
    options = [(label, o) for label, o in outlook.options if o.break_even is not None]
    if not options:
        return None
    figure = go.Figure()
    labels = list(dict.fromkeys(label for label, _ in options))
    shown: set[tuple[str, int]] = set()
    for variant, k in dict.fromkeys((o.variant, o.k) for _, o in options):
        for order, label in enumerate(labels):
            own = sorted((o for text, o in options if text == label and (o.variant, o.k) == (variant, k)), key=_batch)
            if own:
                name = f"{variant} k={k}"
                figure.add_trace(_needs(own, f"{name}, {label}", palette[variant], order / max(len(labels), 1)))
                shown.add((variant, k))
    for variant, k in shown:
        gets = sorted((o for _, o in options if (o.variant, o.k) == (variant, k)), key=_batch)
        figure.add_trace(
            go.Scatter(
                x=[o.batch for o in gets],
                y=[o.tokens_per_step for o in gets],
                mode="markers",
                name=f"{variant} k={k} gets",
                marker={"color": palette[variant], "symbol": "diamond-open", "size": 9},
                hovertemplate="gets %{y:.2f} tokens a step<extra></extra>",
            )
        )
    _style(figure, "concurrent users", "tokens a step", height=440)
    figure.update_xaxes(type="log", tickvals=sorted({o.batch for _, o in options}))
    return figure


def _needs(own: Sequence[Option], name: str, colour: str, share: float) -> go.Scatter:
    needed = [o.break_even for o in own if o.break_even is not None]
    return go.Scatter(
        x=[o.batch for o in own],
        y=[i.mid for i in needed],
        mode="lines+markers",
        name=f"{name} needs",
        opacity=1 - 0.65 * share,
        line={"color": colour, "width": 2},
        marker={"size": 8, "symbol": [_MARKS[o.source] for o in own]},
        customdata=[[i.low, i.high, o.source] for i, o in zip(needed, own, strict=True)],
        hovertemplate="needs %{y:.2f} (%{customdata[0]:.2f}-%{customdata[1]:.2f}) tokens a step, %{customdata[2]}"
        f"<extra>{name}</extra>",
    )


def _batch(option: Option) -> int:
    return option.batch


def _cell_text(choice: PlaceChoice) -> str:
    gain = choice.best.speedup
    mark = "" if choice.best.source == "measured" else "<i>~"
    end = "</i>" if mark else ""
    if gain is None:
        rivals = [o for o in choice.options if o.speedup is not None]
        nearest = max(rivals, key=lambda o: o.speedup.mid if o.speedup else 0.0, default=None)
        if nearest is None or nearest.speedup is None:
            return "plain"
        return f"plain<br>k={nearest.k} {'' if nearest.source == 'measured' else '~'}{nearest.speedup.mid:.2f}x"
    return f"{mark}k={choice.best.k} {gain.mid:.2f}x{end}<br>{gain.low:.2f}-{gain.high:.2f}"


def _style(figure: go.Figure, x_title: str, y_title: str, *, height: int) -> None:
    axis: dict[str, Any] = {"gridcolor": GRID, "linecolor": GRID, "zerolinecolor": GRID}
    figure.update_layout(
        height=height,
        margin={"l": 62, "r": 16, "t": 16, "b": 60},
        font={"family": FONT, "size": 13, "color": INK},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        legend={"orientation": "v", "x": 1.01, "y": 1, "font": {"size": 11}},
    )
    figure.update_xaxes(title_text=x_title, **axis)
    figure.update_yaxes(title_text=y_title, **axis)
