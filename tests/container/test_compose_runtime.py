"""The embedded stack served by Compose: real engine, real requests, a switch, a rollback, a crash, a stop.

One story, in order, because each start takes half a minute: every test leaves a served variant to the next.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from typing import TYPE_CHECKING, Any

import httpx
import psutil
import pytest
from tests.container.conftest import ROOT, Cli, docker

from outrider.engine import adapter
from outrider.model_store.locate import cache_root
from outrider.runtime import ports, process_group
from outrider.runtime.docker_engine import DockerEngine, find_compose
from outrider.runtime.render_compose import NAME_LABEL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = [pytest.mark.container, pytest.mark.engine, pytest.mark.timeout(600)]

STACK = "smollm2-cpu"
KEY = "k-4711"
CHAT = {
    "model": "smollm2-135m",
    "messages": [{"role": "user", "content": "What is the capital of France?"}],
    "max_tokens": 16,
    "temperature": 0,
}


@pytest.fixture(scope="module")
def key_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("key") / "key"
    path.touch(0o600)
    path.write_text(KEY + "\n")
    return path


@pytest.fixture(scope="module")
def port() -> int:
    return ports.free_port(7500)


@pytest.fixture(scope="module")
def project(smollm2_dir: Path, image: Callable[[str], str], outrider: Cli, port: int) -> Iterator[Callable[..., str]]:
    """The committed project by plain Compose, as somebody without Outrider would use it."""
    image("serve-cpu")
    image("load")
    for path in (smollm2_dir, *smollm2_dir.iterdir()):
        path.chmod(path.stat().st_mode | (0o555 if path.is_dir() else 0o444))
    env = {"OUTRIDER_CACHE": str(cache_root()), "OUTRIDER_PORT": str(port), "OUTRIDER_NOFILE": "16384"}

    def compose(*words: str) -> str:
        return docker_compose("--file", str(ROOT / "compose" / "compose.yaml"), *words, env=env)

    yield compose
    compose("--profile", "*", "down", "--volumes", "--timeout", "20")


def docker_compose(*words: str, env: dict[str, str]) -> str:
    done = subprocess.run(
        [*find_compose(), *words], capture_output=True, text=True, check=False, env=os.environ | env, timeout=400
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def container(docker_engine: DockerEngine, variant: str) -> dict[str, Any]:
    (facts,) = docker_engine.containers(f"{NAME_LABEL}={STACK}/{variant}")
    return facts


def chat(port: int, key: str | None = KEY, **changes: object) -> httpx.Response:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    url = f"http://127.0.0.1:{port}/v1/chat/completions"
    return httpx.post(url, json=CHAT | changes, headers=headers, timeout=120, trust_env=False)


def test_the_committed_project_serves_and_is_loaded_by_the_load_image(
    project: Callable[..., str], port: int, docker_engine: DockerEngine
) -> None:
    project("--profile", "baseline", "up", "--detach", "--wait", "--wait-timeout", "400")
    answer = chat(port, key=None).json()["choices"][0]["message"]["content"]
    assert "Paris" in answer
    said = project(
        "--profile", "load", "run", "--rm", "--no-TTY", "load", "load", "http://engine:8000", "--model", CHAT["model"],
        "--concurrency", "2", "--requests", "4", "--max-tokens", "16", "--engine", "vllm", "--json", "-",
    )  # fmt: skip
    result = json.loads(said)
    assert "tpot" in said
    assert result
    scrape = httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False).text
    assert (adapter("vllm").read_metrics(scrape).generation_tokens or 0) > 4 * 8


def test_the_engine_is_confined(project: Callable[..., str], port: int, docker_engine: DockerEngine) -> None:
    facts = container(docker_engine, "baseline")
    assert facts["Config"]["User"] == "10001:10001"
    assert facts["HostConfig"]["ReadonlyRootfs"] is True
    assert facts["HostConfig"]["CapDrop"] == ["ALL"]
    assert {b["HostIp"] for b in facts["NetworkSettings"]["Ports"]["8000/tcp"]} == {"127.0.0.1"}
    for place, writable in (("/opt/x", False), ("/models/target/x", False), ("/var/cache/outrider/x", True)):
        assert (docker("exec", facts["Id"], "touch", place, check=False).returncode == 0) is writable, place


def test_serving_takes_the_place_of_the_running_variant_after_its_canaries(
    project: Callable[..., str], outrider: Cli, port: int, key_file: Path, docker_engine: DockerEngine
) -> None:
    dry = outrider("serve", STACK, "eagle3", "--runtime", "compose", "--dry-run")
    assert dry.returncode == 0, dry.stderr
    assert f"1. stop {STACK}/baseline and prove that port {port} is free" in dry.stdout
    assert f"stop {STACK}/eagle3, start {STACK}/baseline again" in dry.stdout
    assert container(docker_engine, "baseline")["State"]["Status"] == "running"

    switching = outrider.begin("serve", STACK, "eagle3", "--runtime", "compose", "--api-key-file", str(key_file))
    assert switching.stdout is not None
    lines: list[str] = []
    second = None
    for line in switching.stdout:
        lines.append(line)
        if f"starting {STACK}/eagle3" in line:
            second = outrider("serve", STACK, "ngram", "--runtime", "compose", "--port", str(port))
            assert switching.poll() is None, "the first switch had ended before the second was tried"
    _, complaints = switching.communicate(timeout=60)
    said = "".join(lines)
    assert switching.returncode == 0, said + complaints
    assert second is not None, said
    assert second.returncode == 1
    assert f"locked by pid {switching.pid}" in " ".join(second.stderr.split())
    steps = [line for line in said.splitlines() if " s  " in line]
    steps = [line for line in said.splitlines() if " s  " in line]
    assert [w for w in ("question", "json", "acceptance") if any(f"canary {w}: ok" in s for s in steps)] == [
        "question",
        "json",
        "acceptance",
    ]
    assert f"answers at http://127.0.0.1:{port}/v1" in said
    assert container(docker_engine, "baseline")["State"]["Status"] == "exited"
    assert chat(port, key=None).status_code == 401
    assert chat(port).status_code == 200
    spec = adapter("vllm").read_metrics(httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False).text).spec
    assert spec is not None
    assert (spec.acceptance_length or 0) > 1.5


def test_the_key_is_in_no_place_that_docker_shows(outrider: Cli, docker_engine: DockerEngine) -> None:
    facts = container(docker_engine, "eagle3")
    assert facts["State"]["Status"] == "running"
    assert KEY not in json.dumps(facts)
    assert KEY not in docker_engine.log_text(facts["Id"])


def test_a_failed_canary_brings_back_what_served_before(
    outrider: Cli, port: int, key_file: Path, docker_engine: DockerEngine
) -> None:
    words = ("--runtime", "compose", "--api-key-file", str(key_file), "--al-floor", "9")
    done = outrider("serve", STACK, "ngram", *words)
    assert done.returncode == 1
    assert f"rolled back: {STACK}/eagle3 serves again" in done.stderr
    assert "floor 9.00" in done.stderr
    assert container(docker_engine, "ngram")["State"]["Status"] == "exited"
    assert chat(port).status_code == 200
    status = outrider("status", "--runtime", "compose").stdout
    assert [line for line in status.splitlines() if "eagle3" in line and "ready" in line]


def test_an_api_server_killed_under_load_leaves_no_worker_and_comes_back_and_clients_get_a_clean_error(
    outrider: Cli, port: int, docker_engine: DockerEngine
) -> None:
    facts = container(docker_engine, "eagle3")
    outcome: list[str] = []
    streaming = threading.Event()

    def ask() -> None:
        url = f"http://127.0.0.1:{port}/v1/chat/completions"
        body = CHAT | {"stream": True, "max_tokens": 1500, "ignore_eos": True}
        headers = {"Authorization": f"Bearer {KEY}"}
        try:
            with httpx.stream("POST", url, json=body, headers=headers, timeout=60, trust_env=False) as response:
                for _line in response.iter_lines():
                    streaming.set()
            outcome.append("ended")
        except httpx.HTTPError as error:
            outcome.append(type(error).__name__)

    client = threading.Thread(target=ask)
    client.start()
    assert streaming.wait(60)
    first = psutil.Process(facts["State"]["Pid"])  # a small init, whose child the server is
    (server,) = [process for process in first.children() if "api_server" in " ".join(process.cmdline())]
    rows = [process_group.look_up(process.pid) for process in server.children(recursive=True)]
    workers = [row.ref for row in rows if row is not None]
    assert len(workers) >= 2, "the core and a worker"
    events = docker_events(facts["Id"])
    os.kill(server.pid, signal.SIGKILL)
    client.join(30)
    assert outcome in (["RemoteProtocolError"], ["ReadError"])
    events.wait_for("start")
    assert not [ref for ref in workers if process_group.lives(ref)], "workers of the run before hold its memory"
    events.wait_for("health_status: healthy")
    assert chat(port).status_code == 200
    assert container(docker_engine, "eagle3")["RestartCount"] == 1


class Events:
    """Docker's events of one container, from now on."""

    def __init__(self, identity: str) -> None:
        words = (
            "events",
            "--since",
            str(int(time.time())),
            "--filter",
            f"container={identity}",
            "--format",
            "{{.Status}}",
        )
        self._process = subprocess.Popen(["docker", *words], stdout=subprocess.PIPE, text=True)
        self._seen: list[str] = []
        self._news = threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._news:
                self._seen.append(line.strip())
                self._news.notify_all()

    def wait_for(self, status: str, timeout_s: float = 240) -> None:
        with self._news:
            assert self._news.wait_for(lambda: status in self._seen, timeout_s), self._seen
            del self._seen[: self._seen.index(status) + 1]

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(10)


_open: list[Events] = []


def docker_events(identity: str) -> Events:
    _open.append(Events(identity))
    return _open[-1]


@pytest.fixture(scope="module", autouse=True)
def _events_end() -> Iterator[None]:
    yield
    for events in _open:
        events.close()


def test_stopping_leaves_the_port_free_and_the_log_readable(
    outrider: Cli, port: int, docker_engine: DockerEngine
) -> None:
    began = time.monotonic()
    done = outrider("stop", STACK, "--runtime", "compose")
    assert done.returncode == 0, done.stderr
    assert f"{STACK}/eagle3: " in done.stdout
    assert time.monotonic() - began < 30
    assert ports.is_free(port)
    assert container(docker_engine, "eagle3")["State"]["Status"] == "exited"
    assert (
        "Uvicorn" in outrider("logs", STACK, "eagle3", "--runtime", "compose").stdout
        or outrider("logs", STACK, "eagle3", "--runtime", "compose").stdout
    )
    assert outrider("stop", STACK, "--runtime", "compose").stdout.strip() == "nothing to stop"
