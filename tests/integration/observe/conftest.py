"""A real Prometheus and a real Alertmanager on free ports, configured by the committed files."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest
import yaml

from outrider.runtime.ports import free_port

ROOT = Path(__file__).resolve().parents[3]
FIXTURES = ROOT / "tests" / "fixtures" / "metrics"
_PATIENCE_S = 90.0


def until(condition: Callable[[], object], what: str) -> object:
    """Ask again and again until it holds; other processes tell nothing by themselves."""
    pause, deadline = threading.Event(), time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        try:
            if found := condition():
                return found
        except httpx.HTTPError:
            pass
        pause.wait(0.1)
    pytest.fail(f"in {_PATIENCE_S:.0f} s: {what}")


@dataclass
class Server:
    """Something that Prometheus scrapes, or that receives what Alertmanager sends.

    Attributes:
        port: where it listens.
        scrapes: how often it was asked.
        received: bodies of POSTs.
    """

    port: int = 0
    scrapes: int = 0
    received: list[dict] = field(default_factory=list)
    http: ThreadingHTTPServer | None = None

    def close(self) -> None:
        if self.http is not None:
            self.http.shutdown()
            self.http.server_close()
            self.http = None


@pytest.fixture(scope="module")
def serve_text() -> Iterator[Callable[[Callable[[int], str]], Server]]:
    """Starts servers of a text; what it is may depend on how often it was asked."""
    started: list[Server] = []

    def start(text_of: Callable[[int], str] = lambda _: "") -> Server:
        server = Server()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.scrapes += 1
                body = text_of(server.scrapes).encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_POST(self) -> None:
                server.received.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *args: object) -> None:
                pass

        server.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.port = server.http.server_port
        threading.Thread(target=server.http.serve_forever, daemon=True).start()
        started.append(server)
        return server

    yield start
    for server in started:
        server.close()


@dataclass
class Prometheus:
    """A running Prometheus.

    Attributes:
        url: of its API.
        targets: directory of its targets.
    """

    url: str
    targets: Path

    def ask(self, path: str, **params: object) -> object:
        answer = httpx.get(f"{self.url}/api/v1/{path}", params=params, timeout=30)
        body = answer.json()
        assert body["status"] == "success", (params, body)
        return body["data"]

    def query(self, expr: str) -> list[dict]:
        found = self.ask("query", query=expr)
        assert isinstance(found, dict)
        return found["result"] if found["resultType"] == "vector" else [{"metric": {}, "value": found["result"]}]

    def active(self) -> dict[str, dict]:
        """Active targets by address."""
        found = self.ask("targets", state="active")
        assert isinstance(found, dict)
        return {target["labels"]["instance"]: target for target in found["activeTargets"]}


@pytest.fixture(scope="module")
def started_processes() -> Iterator[list[subprocess.Popen]]:
    processes: list[subprocess.Popen] = []
    yield processes
    for process in reversed(processes):
        process.terminate()
        process.wait(timeout=30)


@pytest.fixture(scope="module")
def start_prometheus(
    prometheus_program: str, tmp_path_factory: pytest.TempPathFactory, started_processes: list[subprocess.Popen]
) -> Callable[..., Prometheus]:
    """Starts one from `prometheus/`: other ports and directories, shorter intervals, everything else as committed."""

    def start(
        *,
        interval: str = "1s",
        evaluation: str = "1s",
        hold: str | None = None,
        ports: dict[int, int] | None = None,
    ) -> Prometheus:
        room = tmp_path_factory.mktemp("prometheus")
        targets = room / "targets"
        targets.mkdir()
        port = free_port(9100)
        text = (ROOT / "prometheus" / "prometheus.yml").read_text().replace("/etc/prometheus/targets", str(targets))
        for usual, other in ({9090: port} | (ports or {})).items():
            text = text.replace(f"127.0.0.1:{usual}", f"127.0.0.1:{other}")
        config = yaml.safe_load(text)
        config["global"] |= {"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": evaluation}
        for job in config["scrape_configs"]:
            job.pop("scrape_interval", None)
        (room / "rules").mkdir()
        for file in (ROOT / "prometheus" / "rules").glob("*.yml"):
            rules = yaml.safe_load(file.read_text())
            for group in rules["groups"]:
                group["interval"] = evaluation
                for rule in group["rules"]:
                    if hold and "for" in rule:
                        rule["for"] = hold
            (room / "rules" / file.name).write_text(yaml.safe_dump(rules))
        (room / "prometheus.yml").write_text(yaml.safe_dump(config))
        with (room / "log").open("wb") as log:
            process = subprocess.Popen(
                [
                    prometheus_program,
                    f"--config.file={room / 'prometheus.yml'}",
                    f"--storage.tsdb.path={room / 'data'}",
                    f"--web.listen-address=127.0.0.1:{port}",
                ],
                stdout=log,
                stderr=log,
            )
        started_processes.append(process)
        url = f"http://127.0.0.1:{port}"
        until(lambda: httpx.get(f"{url}/-/ready").status_code == 200, f"Prometheus is ready ({room / 'log'})")
        return Prometheus(url, targets)

    return start


@pytest.fixture(scope="module")
def start_alertmanager(
    alertmanager_program: str, tmp_path_factory: pytest.TempPathFactory, started_processes: list[subprocess.Popen]
) -> Callable[[int], str]:
    """Starts one from `prometheus/alertmanager.yml` with a webhook as receiver; gives its URL."""

    def start(webhook_port: int) -> str:
        room = tmp_path_factory.mktemp("alertmanager")
        config = yaml.safe_load((ROOT / "prometheus" / "alertmanager.yml").read_text())
        config["receivers"][0]["webhook_configs"] = [{"url": f"http://127.0.0.1:{webhook_port}/alerts"}]
        config["route"] |= {"group_wait": "0s", "group_interval": "1s"}
        (room / "alertmanager.yml").write_text(yaml.safe_dump(config))
        port = free_port(9200)
        with (room / "log").open("wb") as log:
            process = subprocess.Popen(
                [
                    alertmanager_program,
                    f"--config.file={room / 'alertmanager.yml'}",
                    f"--storage.path={room / 'data'}",
                    f"--web.listen-address=127.0.0.1:{port}",
                    "--cluster.listen-address=",
                ],
                stdout=log,
                stderr=log,
            )
        started_processes.append(process)
        url = f"http://127.0.0.1:{port}"
        until(lambda: httpx.get(f"{url}/-/ready").status_code == 200, f"Alertmanager is ready ({room / 'log'})")
        return url

    return start
