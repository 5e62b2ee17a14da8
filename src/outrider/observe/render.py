"""Everything below `prometheus/` and `grafana/` that is made from code: rendered, committed, and compared by a test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from outrider.observe.alerts import alerts
from outrider.observe.dashboards import dashboards
from outrider.observe.node_metrics import dcgm_counters
from outrider.observe.panels import dashboard_json
from outrider.observe.rules import groups

PROJECT = Path(__file__).resolve().parents[3]
INTERVAL = "15s"
_HEAD = "# Rendered by `outrider observe render`; change src/outrider/observe/{module}.py.\n"


def files() -> dict[str, str]:
    """Path relative to the project -> content."""
    found = {
        "prometheus/rules/outrider.yml": rules_text(),
        "prometheus/rules/alerts.yml": alerts_text(),
        "compose/dcgm-counters.csv": dcgm_counters(),
    }
    for dashboard in dashboards():
        name = dashboard.uid.removeprefix("outrider-")
        found[f"grafana/dashboards/{name}.json"] = dashboard_json(dashboard)
    return found


def rules_text() -> str:
    """The recording rules as a rule file."""
    made = [
        {"name": name, "interval": INTERVAL, "rules": [rule.to_json() for rule in rules]}
        for name, rules in groups().items()
    ]
    return _HEAD.format(module="rules") + _yaml({"groups": made})


def alerts_text() -> str:
    """The alerts as a rule file."""
    group = {"name": "outrider-alerts", "interval": INTERVAL, "rules": [alert.to_json() for alert in alerts()]}
    return _HEAD.format(module="alerts") + _yaml({"groups": [group]})


def outdated(project: Path = PROJECT) -> list[str]:
    """Files that are not what would be rendered now."""
    return [name for name, text in files().items() if not _same(project / name, text)]


def write(project: Path = PROJECT) -> list[str]:
    """Write what is outdated; gives its names."""
    changed = outdated(project)
    every = files()
    for name in changed:
        path = project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(every[name], encoding="utf-8")
    return changed


def _same(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text(encoding="utf-8") == text


class _Dumper(yaml.SafeDumper):
    """Writes expressions of several lines as they are."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002
        super().increase_indent(flow, False)


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def _yaml(data: dict[str, Any]) -> str:
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, width=1000, allow_unicode=True)
