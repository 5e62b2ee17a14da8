"""Every query of every panel, and every alert, against a real Prometheus that scrapes the real engine under load.

Beside the engine stand expositions of other versions, whose counters are made to grow; the exporter of recorded cells;
a node exporter; and the load client's own exporter. What is left without data must be on the list of GPU panels.
"""

from __future__ import annotations

import json
import math
import re
import subprocess
import threading
from pathlib import Path

import httpx
import pytest
from tests.integration.observe.conftest import FIXTURES, ROOT, Prometheus, until
from tests.unit.campaign.made import cell

from outrider.campaign.cell import Cell
from outrider.campaign.engines import Engines
from outrider.load import LoadPlan, run_load
from outrider.observe.alerts import alerts
from outrider.observe.exporter import CellsExporter
from outrider.runtime import discovery
from outrider.runtime.announced import Announced
from outrider.runtime.local import LocalRuntime
from outrider.runtime.ports import free_port
from outrider.stack import find_stack

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.quiet, pytest.mark.timeout(900)]

CPU = find_stack("smollm2-cpu")
RECORDED = {
    "vllm-0.33.0-eagle3": "vllm",
    "vllm-0.13.0-eagle3": "vllm",
    "vllm-0.32.0-ngram": "vllm",
    "vllm-0.32.0-ngram-auto": "vllm",
    "sglang-0.5.23-eagle3": "sglang",
}
# Panels of the node dashboard whose metrics come from a GPU.
NEEDS_GPU = {
    *("Busy", "Device memory in use", "Device memory free", "Memory traffic", "Power", "Temperature", "SM clock"),
    *("Errors", "Double-bit memory errors", "Sent", "Received", "Replays per second"),
}
_USERS = 2


def growing(text: str) -> object:
    """The exposition as its n-th scrape would have been: counters and histograms n times as large."""
    gauges = set(re.findall(r"^# TYPE (\S+) gauge$", text, flags=re.MULTILINE))

    def at(scrape: int) -> str:
        lines = []
        for line in text.splitlines():
            name = re.split(r"[{ ]", line, maxsplit=1)[0]
            if line.startswith("#") or name in gauges or not line:
                lines.append(line)
            else:
                series, _, value = line.rpartition(" ")
                lines.append(f"{series} {float(value) * scrape}")
        return "\n".join(lines) + "\n"

    return at


def recorded_cell(variant: str, concurrency: int, tpot_s: float, al: float | None = None) -> Cell:
    made = cell(variant, "edit", concurrency, tpot_s=tpot_s, al=al)
    provenance = made.provenance.model_copy(update={"stack_digest": CPU.digest()})
    return made.model_copy(update={"provenance": provenance})


@pytest.fixture(scope="module")
def run_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the embedded stack: baseline and ngram at one, two and four users."""
    directory = tmp_path_factory.mktemp("results") / "recorded"
    directory.mkdir()
    cells = [recorded_cell("baseline", users, 0.02 + 0.002 * users) for users in (1, 2, 4)]
    cells += [recorded_cell("ngram", users, 0.014 + 0.002 * users, 1.5) for users in (1, 2, 4)]
    lines = "".join(json.dumps(one.to_json()) + "\n" for one in cells)
    (directory / "cells.jsonl").write_text(lines)
    return directory


@pytest.fixture(scope="module")
def under_load(
    smollm2_dir: Path,
    run_directory: Path,
    start_prometheus,
    serve_text,
    node_exporter_program: str,
    started_processes: list[subprocess.Popen],
    tmp_path_factory: pytest.TempPathFactory,
) -> Prometheus:
    node_port = free_port(9300)
    started_processes.append(
        subprocess.Popen(
            [node_exporter_program, f"--web.listen-address=127.0.0.1:{node_port}"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    )
    prometheus = start_prometheus(ports={9100: node_port})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OUTRIDER_TARGETS", str(prometheus.targets))
        exporter = CellsExporter(CPU, lambda: [run_directory], objective_s=0.05)
        assert exporter.refresh() == []
        discovery.publish(discovery.exporter_target(exporter.serve(0)))
        for name in RECORDED:
            server = serve_text(growing((FIXTURES / f"{name}.txt").read_text()))
            recorded = discovery.Target(
                f"engine-{name}", f"127.0.0.1:{server.port}", {"stack": "recorded", "variant": name}
            )
            discovery.publish(recorded)
        runtime = Announced(LocalRuntime(tmp_path_factory.mktemp("state")), CPU)
        with Engines(CPU, runtime, side_by_side=False) as engines:
            served = engines.get("ngram")
            ended = threading.Event()

            def load() -> None:
                while not ended.is_set():
                    run_load(
                        LoadPlan(
                            url=served.running.url,
                            model=CPU.target.served_name,
                            workload="edit",
                            arrivals={"kind": "closed", "concurrency": _USERS},
                            duration_s=60.0,
                            max_tokens=48,
                            labels={"stack": CPU.name, "variant": "ngram", "workload": "edit"},
                            metrics_port=0,
                        )
                    )

            loader = threading.Thread(target=load)
            loader.start()
            try:
                wanted = ("outrider:speedup:ratio", "outrider:client_tpot_seconds:p50", "outrider:tpot_slo_miss:ratio")
                for name in wanted:
                    until(lambda name=name: prometheus.query(f'{name}{{variant="ngram"}}'), f"{name} is there")
                yield prometheus
            finally:
                ended.set()
                loader.join()


def boards() -> dict[str, dict]:
    return {f.stem: json.loads(f.read_text()) for f in sorted((ROOT / "grafana" / "dashboards").glob("*.json"))}


def filled_in(expr: str) -> str:
    """An expression with every variable at "All"."""
    return re.sub(r"\$(stack|variant|workload|band)\b", ".*", expr)


def queries() -> list[tuple[str, str, str]]:
    """(dashboard, panel, expression) of every query."""
    return [
        (name, panel["title"], filled_in(target["expr"]))
        for name, board in boards().items()
        for panel in board["panels"]
        for target in panel.get("targets") or ()
    ]


def is_gpu(expr: str) -> bool:
    return "DCGM_" in expr


def values_of(prometheus: Prometheus, expr: str) -> list[float]:
    return [float(sample["value"][1]) for sample in prometheus.query(expr)]


def test_every_panel_has_finite_data_or_needs_a_gpu(under_load: Prometheus) -> None:
    empty, odd = set(), []
    for board, title, expr in queries():
        values = values_of(under_load, expr)
        if not values:
            empty.add((board, title, is_gpu(expr)))
        odd += [(board, title, value) for value in values if not math.isfinite(value)]
    assert odd == []
    assert {(board, title) for board, title, gpu in empty if not gpu} == set()
    assert {title for _, title, _ in empty} == NEEDS_GPU


def test_no_panel_was_ever_nan_or_infinite_since_the_start(under_load: Prometheus) -> None:
    now = float(under_load.query("time()")[0]["value"][1])
    for board, title, expr in queries():
        found = under_load.ask("query_range", query=expr, start=now - 120, end=now, step=5)
        for series in found["result"]:
            assert all(math.isfinite(float(value)) for _, value in series["values"]), (board, title)


def test_annotations_and_variables_answer(under_load: Prometheus) -> None:
    for name, board in boards().items():
        for mark in board["annotations"]["list"]:
            assert all(value > 1e12 for value in values_of(under_load, mark["expr"])), (name, mark["name"])
        for variable in board["templating"]["list"]:
            selector, label = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"]).groups()
            found = under_load.query(f"count by ({label}) ({filled_in(selector)})")
            assert found, (name, variable["name"])
            assert all(sample["metric"].get(label) for sample in found)
    assert {s["metric"]["status"] for s in under_load.query("outrider_cell_ended_timestamp_seconds")} == {"ok"}


def test_every_alert_can_be_evaluated_and_those_of_a_healthy_engine_are_quiet(under_load: Prometheus) -> None:
    for alert in alerts():
        assert all(map(math.isfinite, values_of(under_load, alert.expr))), alert.name
    groups = under_load.ask("rules")["groups"]
    assert all(rule["health"] == "ok" for group in groups for rule in group["rules"])
    firing = under_load.query('ALERTS{alertstate="firing", stack="smollm2-cpu"}')
    assert {f["metric"]["alertname"] for f in firing} <= {"SpeculationLosing", "TpotObjectiveBurning", "ClientInvalid"}


def test_the_engines_versions_all_come_out_under_the_same_names(under_load: Prometheus) -> None:
    for name in ("outrider:acceptance_length", "outrider:tokens_per_step", "outrider:engine_tpot_seconds:p50"):
        variants = {s["metric"]["variant"] for s in under_load.query(f'{name}{{stack="recorded"}}')}
        assert variants == set(RECORDED), name
    # 475 drafts and 821 accepted by all three recordings of the k=3 variant.
    for name in ("vllm-0.33.0-eagle3", "vllm-0.13.0-eagle3", "sglang-0.5.23-eagle3"):
        [al] = values_of(under_load, f'outrider:acceptance_length{{variant="{name}"}}')
        assert al == pytest.approx(1 + 821 / 475, rel=0.01)


def test_the_live_engine_is_seen_from_both_ends(under_load: Prometheus) -> None:
    def one(name: str) -> float:
        return values_of(under_load, f'{name}{{stack="smollm2-cpu", variant="ngram"}}')[0]

    assert one("outrider:tokens_per_step") > 1.05
    assert one("outrider:acceptance_length") >= one("outrider:tokens_per_step") * 0.9
    assert one("outrider:concurrency:band") == pytest.approx(_USERS, abs=0.6)
    engine, client = one("outrider:engine_tpot_seconds:mean"), one("outrider:client_tpot_seconds:mean")
    assert client == pytest.approx(engine, rel=0.25)
    # Baseline recorded 24 ms at two users.
    speedup = values_of(under_load, 'outrider:speedup:ratio{variant="ngram", stack="smollm2-cpu"}')[0]
    assert speedup == pytest.approx(0.024 / engine, rel=0.25)


def test_our_exporter_answers_with_few_series_a_variant(under_load: Prometheus) -> None:
    [target] = [t for t in under_load.active().values() if t["labels"]["job"] == "outrider"]
    text = httpx.get(target["scrapeUrl"]).text
    ours = [line for line in text.splitlines() if line.startswith("outrider_")]
    assert 0 < len(ours) < 200 * len(CPU.variants)
