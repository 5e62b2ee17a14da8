"""Waiting until an engine answers: a derived budget, progress from its log, and a rule for slow starts.

The rule: the budget is a fixed part plus the time to read the weights. A start that exceeds it is not ended
while it makes progress: a log line that was not seen before (clock times aside), or a mebibyte read from
storage, within the last `STALL_S`. At `HARD_LIMIT` budgets it is ended anyway. A loop that repeats one
message, such as vLLM's "No available shared memory broadcast block", is therefore not progress.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import httpx

from outrider.runtime.base import Progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from outrider.engine.base import Launch

FIXED_S = 300.0  # imports, compilation, graph capture; SmolLM2 on two cores takes 45 s in all
ASSUMED_BANDWIDTH = 200e6  # bytes/s where nothing was measured: a slow disk or a network file system
READ_SLOWDOWN = 2.0  # engines read shards in many processes and copy them: slower than one plain read
STALL_S = 120.0
HARD_LIMIT = 3.0
_SAMPLE_BYTES = 16 * 2**20
_SAMPLES = 4
_PROGRESS_BYTES = 2**20
_CLOCK = re.compile(r"\b(\d{2,4}-)?\d{2}-\d{2}[ T]\d{2}:\d{2}:\d{2}([.,]\d+)?|\b\d{2}:\d{2}:\d{2}([.,]\d+)?")
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 1.0


@dataclass(frozen=True, slots=True)
class Budget:
    """How long a start may take.

    Attributes:
        fixed_s: what does not depend on the weights.
        weight_bytes: bytes to read.
        bandwidth: bytes per second at which they are read.
        stall_s: beyond the budget, how long a start may show no progress.
    """

    fixed_s: float = FIXED_S
    weight_bytes: int = 0
    bandwidth: float = ASSUMED_BANDWIDTH
    stall_s: float = STALL_S

    @property
    def seconds(self) -> float:
        """Fixed part plus reading time."""
        return self.fixed_s + READ_SLOWDOWN * self.weight_bytes / self.bandwidth

    def __str__(self) -> str:
        reading = f"{self.weight_bytes / 1e9:.1f} GB at {self.bandwidth / 1e6:.0f} MB/s"
        return f"{self.seconds:.0f} s = {self.fixed_s:.0f} s + {READ_SLOWDOWN:g} x {reading}"

    def exceeded(self, elapsed_s: float, since_progress_s: float) -> bool:
        """Whether a start is to be given up: over the budget and stalled, or over the hard limit."""
        if elapsed_s <= self.seconds:
            return False
        return since_progress_s > self.stall_s or elapsed_s > HARD_LIMIT * self.seconds


def measure_bandwidth(weights: Iterable[Path]) -> float | None:
    """Bytes per second of a short read spread over the largest weight file; None if there is nothing to read.

    What lies in the page cache is read at memory speed, by this sample and by the engine alike.
    """
    files: list[Path] = []
    for path in weights:
        files += [f for f in path.rglob("*") if f.is_file()] if path.is_dir() else [path] if path.is_file() else []
    if not files:
        return None
    largest = max(files, key=lambda file: file.stat().st_size)
    size, total = largest.stat().st_size, 0
    begin = time.perf_counter()
    with largest.open("rb", buffering=0) as source:
        for i in range(_SAMPLES):
            source.seek(size * i // _SAMPLES)
            total += len(source.read(min(_SAMPLE_BYTES, size // _SAMPLES)))
    elapsed = time.perf_counter() - begin
    return total / elapsed if total >= _PROGRESS_BYTES and elapsed > 0 else None


def budget_for(
    launch: Launch,
    weights: Iterable[Path],
    *,
    fixed_s: float = FIXED_S,
    bandwidth: float | None = None,
    stall_s: float = STALL_S,
) -> Budget:
    """The budget of one start; a short read of its weights measures the disk unless `bandwidth` says its speed."""
    speed = bandwidth or measure_bandwidth(weights) or ASSUMED_BANDWIDTH
    return Budget(fixed_s, launch.weight_bytes, speed, stall_s)


class StartProgress:
    """What a start has achieved, from its log lines; pure but for the clock readings it is given.

    A pattern with a group `percent` stands for a phase that reports its own percentage: its share counts
    when that reaches 100.
    """

    def __init__(self, patterns: Sequence[tuple[str, float]], expected_s: float | None = None) -> None:
        """Take the patterns of a `Launch`, and the duration of the last start if known."""
        self._patterns = [(re.compile(pattern), share) for pattern, share in patterns]
        self._expected_s = expected_s
        self._seen: set[int] = set()
        self._bytes_read = 0
        self._reached_at_s = 0.0
        self.share: float | None = None
        self.line = ""
        self.progressed_at_s = 0.0

    def note_lines(self, lines: Iterable[str], elapsed_s: float) -> None:
        """Take new log lines."""
        for line in lines:
            self.line = line
            key = hash(_CLOCK.sub("", line))
            if key not in self._seen:
                self._seen.add(key)
                self.progressed_at_s = elapsed_s
            self._advance(line, elapsed_s)

    def note_bytes_read(self, total: int, elapsed_s: float) -> None:
        """Take the bytes that the run has read from storage so far."""
        if total - self._bytes_read >= _PROGRESS_BYTES:
            self._bytes_read = total
            self.progressed_at_s = elapsed_s

    def _advance(self, line: str, elapsed_s: float) -> None:
        before = 0.0
        for pattern, share in self._patterns:
            if match := pattern.search(line):
                percent = match.groupdict().get("percent")
                done = 1.0 if percent is None else min(float(percent) / 100, 1.0)
                reached = before + (share - before) * done
                if reached > (self.share or 0.0):
                    self.share, self._reached_at_s = reached, elapsed_s
            before = share

    def at(self, elapsed_s: float, budget_s: float) -> Progress:
        """The reading to show."""
        total = self._expected_s
        if total is None and self.share:
            total = self._reached_at_s / self.share
        eta = total - elapsed_s if total is not None and total >= elapsed_s else None  # overdue: unknown
        return Progress(self.share, elapsed_s, budget_s, eta, self.line)


def _answers(client: httpx.Client, url: str) -> str:
    """Empty if the health path answers 200, else what it said."""
    try:
        response = client.get(url)
    except httpx.HTTPError as error:
        return f"{type(error).__name__}: {error}"
    return "" if response.status_code == httpx.codes.OK else f"HTTP {response.status_code}"


def wait_ready(
    launch: Launch,
    url: str,
    budget: Budget,
    progress: StartProgress,
    *,
    new_lines: Callable[[], list[str]],
    bytes_read: Callable[[], int],
    died_within: Callable[[float], bool],
    on_progress: Callable[[Progress], None],
) -> str:
    """Poll until the engine answers, dies, or exceeds its budget.

    Args:
        launch: gives the health path.
        url: base URL.
        budget: how long it may take.
        progress: collects what the log says.
        new_lines: log lines since the last call.
        bytes_read: bytes read from storage by the run so far.
        died_within: waits for the engine's end; True as soon as it has ended.
        on_progress: called at each look.

    Returns:
        Empty once it answers; `died` if it ended; else what the health path said last.
    """
    begin = time.monotonic()
    pause = _FIRST_PAUSE_S
    health_url = url + launch.health_path
    own_poll = f'"GET {launch.health_path} '  # the engine logs our own looks: they are not its progress
    with httpx.Client(timeout=2.0, trust_env=False) as client:  # no proxy between us and this machine
        while True:
            elapsed = time.monotonic() - begin
            progress.note_lines((line for line in new_lines() if own_poll not in line), elapsed)
            progress.note_bytes_read(bytes_read(), elapsed)
            answer = _answers(client, health_url)
            if not answer:
                progress.share = 1.0
            on_progress(progress.at(elapsed, budget.seconds))
            if not answer:
                return ""
            if budget.exceeded(elapsed, elapsed - progress.progressed_at_s):
                return answer
            if died_within(pause):
                return "died"
            pause = min(pause * 1.5, _LONGEST_PAUSE_S)
