"""Runs a load test in its own process and brings the result home."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from outrider.errors import LoadError
from outrider.load.result import LoadOutcome, LoadResult, Progress, RequestRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    from outrider.load.plan import LoadPlan

_STDERR_TAIL = 2000
_GONE_S = 10.0


def run_load(plan: LoadPlan, *, on_progress: Callable[[Progress], None] | None = None) -> LoadOutcome:
    """Run one load test.

    Args:
        plan: what to do.
        on_progress: called about twice a second.

    Returns:
        the result and its rows. A test whose requests all fail still has a result; its `status` says so.

    Raises:
        LoadError: the test could not be run, or the load process died.
        KeyboardInterrupt: passed on after the load process and its children are gone.
    """
    with tempfile.TemporaryDirectory(prefix="outrider-load-") as scratch:
        rows = plan.records_file or Path(scratch) / "records.jsonl"
        with (Path(scratch) / "stderr").open("w+b") as stderr:
            result = _supervise(plan, rows, stderr, on_progress)
        return LoadOutcome(result, [] if plan.records_file is not None else read_records(rows))


def read_records(path: Path) -> list[RequestRecord]:
    """Rows of a records file."""
    with path.open("rb") as file:
        return [RequestRecord(**orjson.loads(line)) for line in file]


def _supervise(plan: LoadPlan, rows: Path, stderr: Any, on_progress: Callable[[Progress], None] | None) -> LoadResult:
    worker = subprocess.Popen(
        [sys.executable, "-m", "outrider.load.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        start_new_session=True,  # the terminal's Ctrl-C reaches us alone, and we end the whole group
    )
    assert worker.stdin is not None
    assert worker.stdout is not None
    order = {"plan": plan.model_dump(mode="json"), "records": str(rows.absolute())}
    result: LoadResult | None = None
    try:
        try:
            worker.stdin.write(orjson.dumps(order) + b"\n")
            worker.stdin.flush()
        except BrokenPipeError:
            pass  # it died at once: its standard error tells why
        for line in worker.stdout:
            message = orjson.loads(line)
            if "progress" in message and on_progress is not None:
                on_progress(Progress(**message["progress"]))
            elif "result" in message:
                result = LoadResult.model_validate_json(orjson.dumps(message["result"]))
            elif "error" in message:
                raise LoadError(message["error"].pop("cause"), **message["error"])
        code = worker.wait()
    finally:
        _end(worker)
    if result is None:
        stderr.seek(max(stderr.seek(0, os.SEEK_END) - _STDERR_TAIL, 0))
        raise LoadError(
            f"the load process {_describe(code)} before it had a result",
            evidence=stderr.read().decode("utf-8", "replace").strip() or "it wrote nothing to standard error",
            next_step="free memory if it was killed; otherwise this is a bug worth reporting",
        )
    return result


def _describe(code: int) -> str:
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"


def _end(worker: subprocess.Popen[bytes]) -> None:
    """Kill what is left of the worker's process group and wait until all of it is gone."""
    deadline = time.monotonic() + _GONE_S
    while True:
        try:
            os.killpg(worker.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            break
        worker.poll()  # reap it, or the group lives on as a zombie
        if time.monotonic() > deadline:
            raise LoadError(f"process group {worker.pid} does not die", next_step="look for it with ps")
        time.sleep(0.005)
    worker.wait()
    for pipe in (worker.stdin, worker.stdout):
        if pipe is not None:
            try:
                pipe.close()
            except BrokenPipeError:
                continue
