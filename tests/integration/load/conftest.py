"""The replay server as a fixture, and plans against it."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from outrider.load import LoadOutcome, LoadPlan, Progress, run_load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SERVER = Path(__file__).parents[2] / "replay" / "server.py"


@dataclass
class Replay:
    """A running replay server.

    Attributes:
        url: where it listens.
        truth_file: what it really sent, a JSON line a request.
    """

    url: str
    truth_file: Path

    def truth(self) -> dict[str, dict]:
        """Truth by prompt text; complete once the client has seen the end of its streams."""
        lines = self.truth_file.read_text().splitlines()
        return {row["id"]: row for row in map(json.loads, lines)}


@pytest.fixture
def start_replay(tmp_path: Path) -> Iterator[Callable[..., Replay]]:
    """Starts replay servers, and ends them with the test."""
    running: list[subprocess.Popen] = []

    def start(*arguments: str, scheme: str = "http") -> Replay:
        truth = tmp_path / f"truth-{len(running)}.jsonl"
        server = subprocess.Popen(
            [sys.executable, str(SERVER), "--truth", str(truth), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        running.append(server)
        port = int(server.stdout.readline())
        return Replay(f"{scheme}://127.0.0.1:{port}", truth)

    yield start
    for server in running:
        server.stdin.close()  # the server's sign to leave
        server.wait(timeout=10)
        server.stdout.close()


@pytest.fixture
def replay(start_replay: Callable[..., Replay]) -> Replay:
    return start_replay()


@pytest.fixture
def prompts_file(tmp_path: Path) -> Path:
    """500 prompts, each its own id: truth is found by it."""
    path = tmp_path / "prompts.jsonl"
    path.write_text("".join(json.dumps({"id": f"p{n}", "prompt": f"p{n}"}) + "\n" for n in range(500)))
    return path


@pytest.fixture
def load(replay: Replay, prompts_file: Path) -> Callable[..., LoadOutcome]:
    """Runs a plan against the replay server; `script` says how it answers."""

    def run(
        script: str = "chunks=6,gap=0.005", on_progress: Callable[[Progress], None] | None = None, **fields: object
    ) -> LoadOutcome:
        given = {"arrivals": {"kind": "closed", "concurrency": 2}, "requests": 4, "warmup_requests": 0}
        given |= {"url": replay.url, "model": script, "prompts_file": prompts_file} | fields
        return run_load(LoadPlan(**given), on_progress=on_progress)

    return run


@pytest.fixture
def free_port() -> int:
    """A port that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
