"""Charts of the node report: all-reduces by message size, a line a number of ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import plotly.graph_objects as go

if TYPE_CHECKING:
    from collections.abc import Sequence

    from outrider.preflight.facts.node import AllReduce

# Okabe and Ito's palette, legible with colour-vision deficiencies.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")
_INK, _GRID, _BAD = "#1f2933", "#e4e7eb", "#b42318"
_FONT = "system-ui, -apple-system, 'Segoe UI', sans-serif"
_UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def bandwidth(measured: Sequence[AllReduce]) -> go.Figure | None:
    """Bus bandwidth in 1e9 bytes/s by message size; None if nothing was measured."""
    return _by_size(measured, "bandwidth_gb_s", "bus bandwidth, GB/s", "%{y:.1f} GB/s")


def latency(measured: Sequence[AllReduce]) -> go.Figure | None:
    """Time of one all-reduce in microseconds by message size; None if nothing was measured."""
    return _by_size(measured, "latency_us", "time, µs", "%{y:.0f} µs", log=True)


def _by_size(
    measured: Sequence[AllReduce], field: str, title: str, hover: str, *, log: bool = False
) -> go.Figure | None:
    figure = go.Figure()
    ranks = sorted({one.ranks for one in measured})
    sizes: set[int] = set()
    for number, count in enumerate(ranks):
        own = sorted(
            (one.size_bytes, getattr(one, field))
            for one in measured
            if one.ranks == count and one.size_bytes and getattr(one, field) is not None
        )
        if own:
            sizes |= {size for size, _ in own}
            colour = _COLOURS[number % len(_COLOURS)]
            figure.add_trace(
                go.Scatter(
                    x=[size for size, _ in own],
                    y=[value for _, value in own],
                    name=f"{count} GPUs",
                    mode="lines+markers",
                    line={"color": colour, "width": 2},
                    hovertemplate=f"{hover}<extra>{count} GPUs</extra>",
                )
            )
    hung = sorted({one.ranks for one in measured if one.timed_out})
    if not sizes:
        return None
    if hung:
        figure.add_annotation(
            text=f"timed out at {', '.join(map(str, hung))} GPUs", xref="paper", yref="paper", x=0.5, y=1.02,
            xanchor="center", yanchor="bottom", showarrow=False, font={"color": _BAD, "size": 14},
        )  # fmt: skip
    ticks = sorted(sizes)[:: -(-len(sizes) // 7)]
    figure.update_layout(
        font={"family": _FONT, "color": _INK, "size": 13}, height=330, paper_bgcolor="white", plot_bgcolor="white",
        margin={"l": 60, "r": 20, "t": 36, "b": 50}, legend={"orientation": "h", "y": 1.14, "x": 0},
        hovermode="x unified",
    )  # fmt: skip
    figure.update_xaxes(
        type="log",
        title="message",
        gridcolor=_GRID,
        tickangle=0,
        tickvals=ticks,
        ticktext=[human_bytes(size) for size in ticks],
    )
    # Decades only: plotly's minor labels on a log axis ("2", "5") read like values of their own.
    axis = {"type": "log", "dtick": 1} if log else {"rangemode": "tozero"}
    figure.update_yaxes(title=title, gridcolor=_GRID, **axis)
    return figure


def human_bytes(size: int) -> str:
    """A size in binary units, as nccl-tests' options take it."""
    for unit, name in _UNITS:
        if size >= unit:
            return f"{size / unit:g} {name}"
    return f"{size} B"
