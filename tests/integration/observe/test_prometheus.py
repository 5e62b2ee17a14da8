"""The committed configuration in a real Prometheus and Alertmanager: rules, discovery, an alert that arrives."""

from __future__ import annotations

import subprocess
from pathlib import Path

import httpx
import pytest
from tests.integration.observe.conftest import FIXTURES, ROOT, until

from outrider.observe.alerts import alerts
from outrider.runtime import discovery
from outrider.stack import find_stack

CPU = find_stack("smollm2-cpu")
NGRAM = (FIXTURES / "vllm-0.32.0-ngram.txt").read_text()


def run(*words: str | Path) -> str:
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_rules_and_configuration_are_well_formed(promtool: str, amtool: str) -> None:
    rules = sorted((ROOT / "prometheus" / "rules").glob("*.yml"))
    assert "rules found" in run(promtool, "check", "rules", *rules)
    run(promtool, "check", "config", "--syntax-only", "prometheus/prometheus.yml")
    assert "SUCCESS" in run(amtool, "check-config", "prometheus/alertmanager.yml")


@pytest.mark.parametrize("name", ["figures", "alerts"])
def test_rules_give_what_was_worked_out_by_hand(promtool: str, name: str) -> None:
    assert "SUCCESS" in run(promtool, "test", "rules", f"prometheus/tests/{name}.yml")


def test_every_alert_is_made_to_fire_somewhere() -> None:
    text = (ROOT / "prometheus" / "tests" / "alerts.yml").read_text()
    assert [alert.name for alert in alerts() if f'alertname="{alert.name}"' not in text] == []


def test_a_variant_is_picked_up_and_dropped_by_its_file_alone(start_prometheus, serve_text) -> None:
    prometheus = start_prometheus()
    standing, coming = serve_text(lambda _: NGRAM), serve_text(lambda _: NGRAM)
    first = discovery.engine_target(CPU, "baseline", f"http://127.0.0.1:{standing.port}")
    discovery.publish(first, prometheus.targets)
    until(lambda: standing.scrapes >= 2, "the first target is scraped")

    target = discovery.engine_target(CPU, "ngram", f"http://127.0.0.1:{coming.port}")
    discovery.publish(target, prometheus.targets)
    until(lambda: coming.scrapes, "the new target is scraped")
    found = until(lambda: prometheus.query('up{variant="ngram"} == 1'), "it is up")
    labels = {name: value for name, value in found[0]["metric"].items() if name != "__name__"}
    assert labels == {
        "job": "engine",
        "instance": f"127.0.0.1:{coming.port}",
        "stack": "smollm2-cpu",
        "variant": "ngram",
        "engine_name": "vllm",
        "engine_version": "0.32.0",
        "drafter": "ngram",
    }

    discovery.drop_engine("smollm2-cpu/ngram", prometheus.targets)
    until(lambda: f"127.0.0.1:{coming.port}" not in prometheus.active(), "the target is dropped")
    seen, others = coming.scrapes, standing.scrapes
    until(lambda: standing.scrapes >= others + 2, "the other target is still scraped")
    assert coming.scrapes == seen
    # Its series end at once: a panel shows a gap, not five minutes of old values.
    assert until(lambda: not prometheus.query('vllm:num_requests_running{variant="ngram"}'), "its series ended")
    assert prometheus.query('vllm:num_requests_running{variant="baseline"}')


def test_an_engine_that_dies_is_an_alert_that_reaches_whoever_is_told(
    start_prometheus, start_alertmanager, serve_text
) -> None:
    engine, receiver = serve_text(lambda _: NGRAM), serve_text()
    alertmanager = start_alertmanager(receiver.port)
    port = int(alertmanager.rpartition(":")[2])
    prometheus = start_prometheus(hold="1s", ports={9093: port})
    target = discovery.engine_target(CPU, "ngram", f"http://127.0.0.1:{engine.port}")
    discovery.publish(target, prometheus.targets)
    until(lambda: prometheus.query('up{variant="ngram"} == 1'), "the engine is up")
    engine.close()  # it dies; nobody stopped it, so its file stays

    until(lambda: receiver.received, "the receiver is told")
    [alert] = [a for body in receiver.received for a in body["alerts"] if a["status"] == "firing"][:1]
    assert alert["labels"]["alertname"] == "EngineDown"
    assert (alert["labels"]["stack"], alert["labels"]["variant"]) == ("smollm2-cpu", "ngram")
    assert alert["annotations"]["summary"] == "smollm2-cpu/ngram: the engine does not answer"
    assert (ROOT / alert["annotations"]["runbook"]).is_file()
    listed = httpx.get(f"{alertmanager}/api/v2/alerts").json()
    assert "EngineDown" in {a["labels"]["alertname"] for a in listed}

    discovery.drop_engine("smollm2-cpu/ngram", prometheus.targets)  # what `outrider stop` does
    until(
        lambda: any(a["status"] == "resolved" for body in receiver.received for a in body["alerts"]),
        "the receiver is told that it is over",
    )
