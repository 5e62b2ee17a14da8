"""The node report as a page: what deviates first, then facts, links, topology, all-reduces, packages."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from outrider.provision import figures

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import plotly.graph_objects as go

    from outrider.provision.node_report import Examined
    from outrider.stack import Stack

_CHARTS = (
    ("latency", "Time of one all-reduce", "Small messages are what decode steps send; their time is latency."),
    ("bandwidth", "Bus bandwidth of all-reduces", "Large messages show the links: prefill, and loading."),
)


def write_page(
    file: Path, nodes: Sequence[Examined], *, stack: Stack | None, title: str, silent: Mapping[str, str] | None = None
) -> Path:
    """Write the page, atomically; it needs no network to be read.

    Args:
        file: where to.
        nodes: in the order in which they are shown.
        stack: whose expectations they were compared with.
        title: the run's name.
        silent: nodes without a report, with the reason.
    """
    environment = Environment(
        loader=ChoiceLoader([PackageLoader("outrider.provision", "."), PackageLoader("outrider.report", ".")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    environment.filters["known"] = _known
    environment.filters["size"] = figures.human_bytes
    charts = {node.name: _charts(node) for node in nodes}
    page = environment.get_template("node_report.html.j2").render(
        nodes=nodes,
        stack=stack,
        title=title,
        silent=silent or {},
        charts=charts,
        plotly_js=Markup(get_plotlyjs()) if any(charts.values()) else "",  # noqa: S704 - the library's own file
    )
    scratch = file.with_suffix(f".{os.getpid()}.tmp")
    scratch.write_text(page, encoding="utf-8")
    scratch.replace(file)
    return file


def _charts(node: Examined) -> list[dict[str, Any]]:
    measured = node.report.all_reduce or ()
    drawn = {"latency": figures.latency(measured), "bandwidth": figures.bandwidth(measured)}
    return [
        {"id": f"{name}-{node.name}", "title": title, "caption": caption, "json": _script_json(figure)}
        for name, title, caption in _CHARTS
        if (figure := drawn[name]) is not None
    ]


def _script_json(figure: go.Figure) -> Markup:
    # `</` would end the script element early; JSON may escape the slash.
    return Markup(figure.to_json().replace("</", "<\\/"))  # noqa: S704


def _known(value: object, unit: str = "") -> str:
    """A value with its unit; what is unknown says so."""
    if value is None or value == "":
        return "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value}{unit}"
