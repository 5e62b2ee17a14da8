"""The report's charts, as plotly figures. Intervals are 95 % bootstrap intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING

import plotly.graph_objects as go
from plotly.subplots import make_subplots

if TYPE_CHECKING:
    from collections.abc import Sequence

    from outrider.campaign.compare import Point
    from outrider.campaign.stats import Interval

# Okabe and Ito's palette, legible with colour-vision deficiencies; grey is the reference.
_BASELINE = "#7a828c"
_PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6d1f")
INK, GRID, FONT = "#1f2933", "#e4e7eb", "system-ui, -apple-system, 'Segoe UI', sans-serif"


def colours(variants: Sequence[str]) -> dict[str, str]:
    """One colour a variant, the same in every chart."""
    others = [v for v in variants if v != "baseline"]
    return {"baseline": _BASELINE} | {v: _PALETTE[i % len(_PALETTE)] for i, v in enumerate(others)}


def speedup(points: Sequence[Point], palette: dict[str, str]) -> go.Figure:
    """Speedup against baseline by concurrency, a panel a workload; the line at 1 is parity."""
    figure = _panels(points, "speedup")
    for index, workload in enumerate(_workloads(points), start=1):
        for variant in _variants(points):
            own = [p for p in points if p.workload == workload and p.variant == variant and p.speedup]
            if own:
                _add(figure, index, variant, palette, own, [p.speedup for p in own], "%{y:.2f}x")
        figure.add_hline(y=1, line={"color": INK, "width": 1, "dash": "dot"}, row=1, col=index)
    return figure


def tpot(points: Sequence[Point], palette: dict[str, str]) -> go.Figure:
    """Mean time per output token by concurrency, in milliseconds."""
    figure = _panels(points, "TPOT, ms")
    for index, workload in enumerate(_workloads(points), start=1):
        for variant in _variants(points):
            own = [p for p in points if p.workload == workload and p.variant == variant and p.tpot_s]
            if own:
                _add(figure, index, variant, palette, own, [p.tpot_s for p in own], "%{y:.1f} ms", scale=1000)
    figure.update_yaxes(rangemode="tozero")
    return figure


def throughput(points: Sequence[Point], palette: dict[str, str]) -> go.Figure:
    """Output tokens per second of all users, by concurrency."""
    figure = _panels(points, "tokens/s, all users")
    for index, workload in enumerate(_workloads(points), start=1):
        for variant in _variants(points):
            own = [p for p in points if p.workload == workload and p.variant == variant and p.throughput_tok_s]
            if own:
                figure.add_trace(
                    go.Bar(
                        x=[str(p.concurrency) for p in own],
                        y=[p.throughput_tok_s for p in own],
                        name=variant,
                        legendgroup=variant,
                        showlegend=index == 1,
                        marker_color=palette[variant],
                        hovertemplate=f"{variant}: %{{y:.0f}} tok/s<extra></extra>",
                    ),
                    row=1,
                    col=index,
                )
    figure.update_layout(barmode="group")
    return figure


def acceptance(points: Sequence[Point], palette: dict[str, str]) -> go.Figure | None:
    """Unconditional acceptance by draft position, a panel a workload; None if nothing speculated."""
    drafted = [p for p in points if p.accepted_per_pos]
    if not drafted:
        return None
    figure = _panels(drafted, "accepted / drafts", x_title="draft position")
    for index, workload in enumerate(_workloads(drafted), start=1):
        for variant in _variants(drafted):
            own = [p for p in drafted if p.workload == workload and p.variant == variant]
            for order, point in enumerate(own):
                figure.add_trace(
                    go.Bar(
                        x=[str(i + 1) for i in range(len(point.accepted_per_pos))],
                        y=list(point.accepted_per_pos),
                        name=f"{variant}, {point.concurrency} user{'s' * (point.concurrency > 1)}",
                        legendgroup=f"{variant}{point.concurrency}",
                        showlegend=index == 1,
                        marker={"color": _lighter(palette[variant], 0.7 * order / max(len(own), 1))},
                        hovertemplate=f"{variant}, position %{{x}}: %{{y:.1%}}<extra></extra>",
                    ),
                    row=1,
                    col=index,
                )
    figure.update_yaxes(tickformat=".0%", range=[0, 1])
    figure.update_layout(barmode="group")
    return figure


def _lighter(colour: str, share: float) -> str:
    """A hex colour mixed with white: share 0 leaves it, 1 is white."""
    parts = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(part + (255 - part) * share):02x}" for part in parts)


def _add(
    figure: go.Figure,
    column: int,
    variant: str,
    palette: dict[str, str],
    points: Sequence[Point],
    intervals: Sequence[Interval | None],
    label: str,
    *,
    scale: float = 1.0,
) -> None:
    known = [(p, i) for p, i in zip(points, intervals, strict=True) if i is not None]
    figure.add_trace(
        go.Scatter(
            x=[str(p.concurrency) for p, _ in known],
            y=[i.mid * scale for _, i in known],
            error_y={
                "type": "data",
                "array": [(i.high - i.mid) * scale for _, i in known],
                "arrayminus": [(i.mid - i.low) * scale for _, i in known],
                "thickness": 1.6,
                "width": 5,
            },
            mode="lines+markers",
            name=variant,
            legendgroup=variant,
            showlegend=column == 1,
            line={"color": palette[variant], "width": 2},
            marker={"size": 9},
            hovertemplate=f"{variant}: {label}<extra></extra>",
        ),
        row=1,
        col=column,
    )


def _panels(points: Sequence[Point], y_title: str, *, x_title: str = "concurrent users") -> go.Figure:
    workloads = _workloads(points)
    figure = make_subplots(
        rows=1,
        cols=len(workloads),
        shared_yaxes=True,
        horizontal_spacing=0.04,
        subplot_titles=[f"<b>{w}</b>" for w in workloads],
    )
    figure.update_layout(
        height=360,
        margin={"l": 62, "r": 16, "t": 36, "b": 84},
        font={"family": FONT, "size": 13, "color": INK},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        legend={"orientation": "h", "y": -0.24, "x": 0},
    )
    figure.update_xaxes(type="category", title_text=x_title, gridcolor=GRID, linecolor=GRID)
    figure.update_yaxes(gridcolor=GRID, zerolinecolor=GRID)
    figure.update_yaxes(title_text=y_title, col=1)
    return figure


def _workloads(points: Sequence[Point]) -> list[str]:
    return list(dict.fromkeys(p.workload for p in points))


def _variants(points: Sequence[Point]) -> list[str]:
    return list(dict.fromkeys(p.variant for p in points))
