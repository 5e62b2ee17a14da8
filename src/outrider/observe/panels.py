"""What a dashboard is made of, and how Grafana's own types write it down.

A panel is described by a few facts; `build` turns a list of them into a dashboard with the `grafana-foundation-sdk`
(extra `dashboards`), which is needed to render and nowhere else.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from outrider.observe import series as s

if TYPE_CHECKING:
    from collections.abc import Sequence

DATASOURCE = "outrider-prometheus"  # fixed: file provisioning resolves no placeholder
_COLUMNS = 24
_COLOURS = ("red", "orange", "green")
NO_TRAFFIC = "no traffic"
NO_BASELINE = "no traffic, or no baseline recorded at this load"
NOT_SPECULATING = "no traffic, or not speculating"
NOT_CHOOSING = "no traffic, or no variant that chooses k by itself"
VARIABLES = {
    "stack": f"label_values({s.RUNNING}, stack)",
    "variant": f'label_values({s.RUNNING}{{stack=~"$stack"}}, variant)',
}


@dataclass(frozen=True, slots=True)
class Query:
    """One query of a panel.

    Attributes:
        expr: PromQL; may hold the dashboard's variables.
        legend: Grafana's legend format.
        instant: ask for the value now only.
    """

    expr: str
    legend: str = "{{variant}}"
    instant: bool = False


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel.

    Attributes:
        title: short.
        description: what it shows and how to read it, for somebody who sees it for the first time.
        queries: at least one.
        unit: Grafana's name of the unit.
        kind: a line over time, the last value in large digits, bars of last values, or a table.
        width: of 24 columns.
        limits: two values at which the colour changes; rising from bad to good, or falling if `high_is_bad`.
        high_is_bad: larger values are worse.
        low, high: ends of the axis where they are known.
        needs_gpu: its metrics come from DCGM only.
        empty: shown when there is no data.
        decimals: digits after the point.
    """

    title: str
    description: str
    queries: tuple[Query, ...]
    unit: str = "short"
    kind: Literal["line", "number", "bars", "table"] = "line"
    width: int = 8
    limits: tuple[float, float] | None = None
    high_is_bad: bool = False
    low: float | None = None
    high: float | None = None
    needs_gpu: bool = False
    empty: str = NO_TRAFFIC
    decimals: int | None = None

    @property
    def height(self) -> int:
        """In rows of the grid."""
        return 4 if self.kind == "number" else 8


@dataclass(frozen=True, slots=True)
class Mark:
    """An annotation: a moment that is drawn through all panels.

    Attributes:
        name: of the toggle.
        expr: PromQL; its value is the moment, in milliseconds.
        title: Grafana's template of the label.
        colour: of the line.
    """

    name: str
    expr: str
    title: str
    colour: str


@dataclass(frozen=True, slots=True)
class Row:
    """A heading and what stands below it."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Dashboard:
    """One dashboard.

    Attributes:
        uid: fixed, part of its address.
        title: as in the list.
        description: what question it answers.
        rows: from top to bottom.
        variables: label to the query that lists its values.
        marks: annotations.
        since: how far back it looks when it is opened.
    """

    uid: str
    title: str
    description: str
    rows: tuple[Row, ...]
    variables: dict[str, str] = field(default_factory=dict)
    marks: tuple[Mark, ...] = ()
    since: str = "now-30m"

    @property
    def panels(self) -> list[Panel]:
        """All panels, in order."""
        return [panel for row in self.rows for panel in row.panels]


def chosen(name: str, extra: str = "") -> str:
    """A series, of the stack and variant that are chosen at the top of the dashboard."""
    return f'{name}{{stack=~"$stack", variant=~"$variant"{", " + extra if extra else ""}}}'


SWITCHES = Mark("variant switches", f"{s.START_TIME} * 1000", "{{stack}}/{{variant}} started", "blue")


def dashboard_json(dashboard: Dashboard) -> str:
    """The file that Grafana reads."""
    from outrider.observe import grafana  # noqa: PLC0415 - needs an extra, and to render only

    return json.dumps(grafana.build(dashboard), indent=1, sort_keys=True) + "\n"


def place(panels: Sequence[Panel], top: int) -> tuple[list[tuple[int, int]], int]:
    """Left and top of each panel, filling rows from the left; and the first free row below."""
    places: list[tuple[int, int]] = []
    x = y = deepest = 0
    for panel in panels:
        if x + panel.width > _COLUMNS:
            x, y = 0, deepest
        places.append((x, top + y))
        x += panel.width
        deepest = max(deepest, y + panel.height)
    return places, top + deepest


def steps_of(panel: Panel) -> list[tuple[float | None, str]]:
    """Thresholds as (from which value, colour); one colour where there are none."""
    if panel.limits is None:
        return [(None, "blue" if panel.kind == "number" else "green")]
    colours = tuple(reversed(_COLOURS)) if panel.high_is_bad else _COLOURS
    return list(zip((None, *panel.limits), colours, strict=True))
