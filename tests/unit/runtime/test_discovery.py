"""Targets: written when something answers, dropped when it is stopped, whole at every moment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from outrider.engine import Launch
from outrider.errors import RuntimeStateError
from outrider.runtime import choice, discovery
from outrider.runtime.announced import Announced
from outrider.runtime.base import State, Status
from outrider.stack import find_stack

CPU = find_stack("smollm2-cpu")
LAUNCH = Launch(("x",), {}, 8000, "/health", "/metrics")


class Running:
    """An engine that somebody else started."""

    def __init__(self, name: str) -> None:
        self.name, self.url, self.pid, self.log_file, self.stopped = name, "http://127.0.0.1:8000", 1, None, False

    def log_lines(self, last: int | None = None) -> list[str]:
        return []

    def alive(self) -> bool:
        return not self.stopped

    def failure(self) -> None:
        return None

    def stop(self) -> None:
        self.stopped = True

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class Runtime:
    """Starts what it is told, or fails."""

    def __init__(self, *, fails: bool = False) -> None:
        self.fails, self.running = fails, Running("")

    def start(self, name: str, launch: Launch, **_: object) -> Running:
        if self.fails:
            raise RuntimeStateError("it did not start")
        self.running = Running(name)
        return self.running

    def status(self, name: str) -> Status:
        return Status(name, State.READY)

    def list(self) -> tuple[Status, ...]:
        return (Status("smollm2-cpu/ngram", State.READY),)

    def log_lines(self, name: str, last: int | None = None) -> list[str]:
        return ["line"]

    def stop(self, name: str) -> Status:
        return Status(name, State.ENDED, ending="stopped")


def published(own_dirs: Path) -> set[str]:
    return {file.name for file in (own_dirs / "state" / "targets").glob("*")}


def test_a_started_variant_is_a_target_with_its_labels_until_it_is_stopped(own_dirs: Path) -> None:
    runtime = Announced(Runtime(), CPU)
    running = runtime.start("smollm2-cpu/eagle3", LAUNCH)
    file = own_dirs / "state" / "targets" / "engine-smollm2-cpu-eagle3.json"
    assert json.loads(file.read_text()) == [
        {
            "targets": ["127.0.0.1:8000"],
            "labels": {
                "__metrics_path__": "/metrics",
                "stack": "smollm2-cpu",
                "variant": "eagle3",
                "engine_name": "vllm",
                "engine_version": "0.32.0",
                "drafter": "models/smollm2-135m-eagle3",
            },
        }
    ]
    assert file.stat().st_mode & 0o777 == 0o644, "Prometheus runs as another user"
    assert file.parent.stat().st_mode & 0o777 == 0o755
    assert running.alive()
    running.stop()
    assert published(own_dirs) == set()


def test_stop_from_another_process_drops_the_target_too(own_dirs: Path) -> None:
    Announced(Runtime(), CPU).start("smollm2-cpu/ngram", LAUNCH)
    assert Announced(Runtime()).stop("smollm2-cpu/ngram").ending == "stopped"
    assert published(own_dirs) == set()


def test_leaving_the_block_drops_the_target(own_dirs: Path) -> None:
    runtime = Runtime()
    with Announced(runtime, CPU).start("smollm2-cpu/ngram", LAUNCH) as running:
        assert published(own_dirs) == {"engine-smollm2-cpu-ngram.json"}
        assert running.name == "smollm2-cpu/ngram"
    assert runtime.running.stopped
    assert published(own_dirs) == set()


def test_what_does_not_start_is_no_target(own_dirs: Path) -> None:
    with pytest.raises(RuntimeStateError):
        Announced(Runtime(fails=True), CPU).start("smollm2-cpu/ngram", LAUNCH)
    assert published(own_dirs) == set()


def test_an_engine_whose_target_cannot_be_written_is_stopped_again(
    own_dirs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTRIDER_TARGETS", "/proc/nowhere")
    runtime = Runtime()
    with pytest.raises(RuntimeStateError, match="cannot be told of a target"):
        Announced(runtime, CPU).start("smollm2-cpu/ngram", LAUNCH)
    assert runtime.running.stopped


def test_every_runtime_is_announced_in_one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "_bare", lambda kind, stack, settings: Runtime())
    assert all(isinstance(choice.runtime_for(kind, CPU), Announced) for kind in choice.Kind)


def test_labels_are_found_by_the_address_that_is_loaded(own_dirs: Path) -> None:
    discovery.publish(discovery.engine_target(CPU, "ngram", "http://127.0.0.1:8000"))
    for url in ("http://127.0.0.1:8000", "http://127.0.0.1:8000/v1", "http://localhost:8000"):
        assert discovery.labels_of(url)["variant"] == "ngram"
    assert discovery.labels_of("http://127.0.0.1:8001") == {}


def test_a_load_process_that_was_killed_is_no_target_any_more(own_dirs: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    directory = own_dirs / "state" / "targets"
    discovery.publish(discovery.Target(f"client-{gone.pid}", "127.0.0.1:1"), directory)
    mine = discovery.client_target(9)
    discovery.publish(mine, directory)
    assert published(own_dirs) == {f"client-{os.getpid()}.json"}
    discovery.drop(mine, directory)
    discovery.drop(mine, directory)
    assert published(own_dirs) == set()
