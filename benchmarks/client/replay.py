"""The replay server as a process, for the benchmarks in this directory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SERVER = Path(__file__).parents[2] / "tests" / "replay" / "server.py"


class Replay:
    """A running replay server.

    Args:
        truth: file for what it really sent; None where nobody asks.
    """

    def __init__(self, truth: Path | None = None) -> None:
        arguments = ["--truth", str(truth)] if truth else []
        self._truth = truth
        self._process = subprocess.Popen(
            [sys.executable, str(SERVER), *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self.url = f"http://127.0.0.1:{int(self._process.stdout.readline())}"

    def truth(self) -> dict[str, dict]:
        """What was sent, by the prompt's text."""
        assert self._truth is not None
        return {row["id"]: row for row in map(json.loads, self._truth.read_text().splitlines())}

    def __enter__(self) -> Replay:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=10)


def write_prompts(path: Path, n: int) -> Path:
    """`n` prompts, each its own id."""
    path.write_text("".join(json.dumps({"id": f"p{i}", "prompt": f"p{i}"}) + "\n" for i in range(n)))
    return path
