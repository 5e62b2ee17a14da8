"""Writes dashboards with Grafana's own types, for Grafana 11.6 (12 reads the same)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from grafana_foundation_sdk.builders import bargauge, common, prometheus, stat, table, timeseries
from grafana_foundation_sdk.builders import dashboard as dash
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as m_common
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models import prometheus as m_prometheus

from outrider.observe.panels import DATASOURCE, Dashboard, Mark, Panel, Row, place, steps_of

if TYPE_CHECKING:
    from outrider.observe.panels import Query

_HEADING = 1
_SOURCE = models.DataSourceRef(type_val="prometheus", uid=DATASOURCE)
_SCHEMA = 41  # of Grafana 11.6
_CALCS = ["lastNotNull"]


def build(dashboard: Dashboard) -> dict[str, Any]:
    """A dashboard as the plain data that provisioning reads."""
    made = (
        dash.Dashboard(dashboard.title)
        .uid(dashboard.uid)
        .description(dashboard.description)
        .tags(["outrider"])
        .editable()
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .refresh("10s")
        .time(dashboard.since, "now")
        .timezone("browser")
        .link(
            dash.DashboardLink("Outrider")
            .type(models.DashboardLinkType.DASHBOARDS)
            .tags(["outrider"])
            .as_dropdown(True)
            .include_vars(True)
            .keep_time(True)
        )
    )
    for name, query in dashboard.variables.items():
        made = made.with_variable(_variable(name, query))
    data: dict[str, Any] = json.loads(json.dumps(made.build(), cls=JSONEncoder))
    data["schemaVersion"] = _SCHEMA
    data["panels"] = _panels(dashboard.rows)
    data["annotations"] = {"list": [_mark(mark) for mark in dashboard.marks]}
    return data


def _panels(rows: tuple[Row, ...]) -> list[dict[str, Any]]:
    found: list[Any] = []
    top, number = 0, 0
    for row in rows:
        number += 1
        heading = dash.Row(row.title).id(number).collapsed(False).grid_pos(models.GridPos(_HEADING, 24, 0, top))
        found.append(heading.build())
        places, below = place(row.panels, top + _HEADING)
        for panel, (x, y) in zip(row.panels, places, strict=True):
            number += 1
            found.append(_panel(panel, number, models.GridPos(panel.height, panel.width, x, y)))
        top = below
    data: list[dict[str, Any]] = json.loads(json.dumps(found, cls=JSONEncoder))
    return data


def _panel(panel: Panel, number: int, where: models.GridPos) -> models.Panel:
    builder = _of_kind(panel)
    builder.id(number).title(panel.title).description(panel.description).datasource(_SOURCE).unit(panel.unit)
    builder.grid_pos(where).no_value(panel.empty)
    if panel.low is not None:
        builder.min(panel.low)
    if panel.high is not None:
        builder.max(panel.high)
    if panel.decimals is not None:
        builder.decimals(panel.decimals)
    steps = [models.Threshold(value, colour) for value, colour in steps_of(panel)]
    builder.thresholds(dash.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(steps))
    for position, query in enumerate(panel.queries):
        builder.with_target(_query(query, chr(ord("A") + position), table=panel.kind == "table"))
    built: models.Panel = builder.build()
    return built


def _of_kind(panel: Panel) -> Any:
    last = common.ReduceDataOptions().calcs(_CALCS).values(False)
    if panel.kind == "number":
        return (
            stat.Panel()
            .reduce_options(last)
            .graph_mode(m_common.BigValueGraphMode.AREA)
            .color_mode(m_common.BigValueColorMode.VALUE)
            .text_mode(m_common.BigValueTextMode.VALUE_AND_NAME)
        )
    if panel.kind == "bars":
        return (
            bargauge.Panel()
            .reduce_options(last)
            .orientation(m_common.VizOrientation.HORIZONTAL)
            .display_mode(m_common.BarGaugeDisplayMode.GRADIENT)
        )
    if panel.kind == "table":
        return table.Panel().filterable(True)
    lines = (
        timeseries.Panel()
        .line_width(2)
        .fill_opacity(8)
        .show_points(m_common.VisibilityMode.AUTO)
        .span_nulls(60_000)  # a gap of a minute is a gap; a missed scrape is none
        .legend(
            common.VizLegendOptions()
            .display_mode(m_common.LegendDisplayMode.TABLE)
            .placement(m_common.LegendPlacement.BOTTOM)
            .show_legend(True)
            .calcs(["mean", "lastNotNull"])
        )
        .tooltip(common.VizTooltipOptions().mode(m_common.TooltipDisplayMode.MULTI).sort(m_common.SortOrder.DESCENDING))
    )
    if panel.limits:
        lines.thresholds_style(common.GraphThresholdsStyleConfig().mode(m_common.GraphThresholdsStyleMode.DASHED))
    return lines


def _query(query: Query, ref: str, *, table: bool) -> prometheus.Dataquery:
    made = prometheus.Dataquery().expr(query.expr).legend_format(query.legend).ref_id(ref).datasource(_SOURCE)
    made.editor_mode(m_prometheus.QueryEditorMode.CODE)
    if table:
        made.format(m_prometheus.PromQueryFormat.TABLE)
    return made.instant() if query.instant or table else made.range()


def _variable(name: str, query: str) -> dash.QueryVariable:
    return (
        dash.QueryVariable(name)
        .label(name)
        .datasource(_SOURCE)
        .query({"query": query, "refId": f"variable-{name}", "qryType": 1})
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        .all_value(".*")
        .current(models.VariableOption(selected=True, text="All", value="$__all"))
    )


def _mark(mark: Mark) -> dict[str, Any]:
    made = dash.AnnotationQuery().name(mark.name).datasource(_SOURCE).enable(True).icon_color(mark.colour)
    data: dict[str, Any] = json.loads(json.dumps(made.expr(mark.expr).build(), cls=JSONEncoder))
    # Fields of the Prometheus data source that the SDK's type does not have.
    return data | {"titleFormat": mark.title, "useValueForTime": True, "step": "60s"}
