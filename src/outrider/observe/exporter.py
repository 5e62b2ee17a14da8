"""The exporter of recorded cells: what live figures are held against, as Prometheus metrics.

It reads the runs of a stack, again whenever one of their files has changed, and answers scrapes from memory. Of the
cells of a place (variant, workload, concurrency band) it publishes the mean, so that the number of series depends
on the grid, not on how often it was measured; of moments it keeps the latest hundred.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily

from outrider.engine import adapter_of
from outrider.errors import OutriderError
from outrider.observe import series as s
from outrider.observe.recorded import BASELINE, Recorded, predictions, read_cells, record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from prometheus_client.core import Metric

    from outrider.stack import Stack

_MOMENTS = 100
_TEXTS = {
    s.BASELINE_TPOT: "Mean time per output token of recorded baseline cells.",
    s.CELL_TPOT: "Mean time per output token of recorded cells of other variants.",
    s.CELL_THROUGHPUT: "Output tokens per second of all users in recorded cells.",
    s.CELL_TOKENS_PER_STEP: "Tokens per step in recorded cells.",
    s.CELL_ENDED: "When a recorded cell ended, Unix seconds.",
    s.PREDICTED_TPOT: "Time per output token that the model predicts.",
    s.SPECULATIVE_TOKENS: "k of the variant.",
    s.SCHEDULE_TOKENS: "k that the variant's schedule asks for at the top of a concurrency band.",
    s.ACCEPTANCE_FLOOR: "Acceptance length under which the drafter is not what its authors measured.",
    s.TPOT_OBJECTIVE: "Time per output token that requests should keep; le is its bucket of the engine's histogram.",
}


@dataclass(slots=True)
class CellsExporter:
    """Publishes runs of one stack.

    Args:
        stack: whose cells they are; cells of another state of it are left out.
        runs: gives the directories of runs: a new one may appear at any time.
        objective_s: time per output token that requests should keep; None publishes none.

    Attributes:
        page: what a scrape is answered with: rendered when something has changed, so that a scrape takes no time.
    """

    stack: Stack
    runs: Callable[[], Sequence[Path]]
    objective_s: float | None = None
    page: bytes = b""
    _read: dict[Path, tuple[tuple[int, int], Recorded]] = field(default_factory=dict)

    def refresh(self) -> list[str]:
        """Read what has changed since the last time; gives the faults of files that could not be read."""
        faults: list[str] = []
        changed = not self.page
        for directory in self.runs():
            file = directory / "cells.jsonl"
            try:
                facts = file.stat()
                stamp = (facts.st_mtime_ns, facts.st_size)
                if file in self._read and self._read[file][0] == stamp:
                    continue
                cells = read_cells(file, self.stack)
            except (OSError, ValueError, OutriderError) as error:
                faults.append(f"{file}: {error}")
                continue
            self._read[file] = (stamp, record(self.stack, cells, predictions(self.stack, file) if cells else None))
            changed = True
        if changed:
            runs = [recorded for _, recorded in self._read.values()] or [record(self.stack, ())]
            self.page = render(families(runs, objectives(self.stack, self.objective_s)))
        return faults

    def serve(self, port: int) -> int:
        """Answer scrapes on loopback, on any free port for 0; gives the port.

        Raises:
            OutriderError: the port is taken.
        """
        exporter = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Content-Type", CONTENT_TYPE_LATEST)
                self.send_header("Content-Length", str(len(exporter.page)))
                self.end_headers()
                self.wfile.write(exporter.page)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
                """Scrapes are not worth a line."""

        try:
            server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        except OSError as error:
            raise OutriderError(
                f"port {port} for the exporter cannot be used: {error.strerror}", next_step="choose another --port"
            ) from error
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server.server_port


class _Fixed:
    """Metrics as they are, for a registry."""

    def __init__(self, metrics: Sequence[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        return iter(self._metrics)


def render(metrics: Sequence[Metric]) -> bytes:
    """Prometheus' text."""
    registry = CollectorRegistry()
    registry.register(_Fixed(metrics))
    return generate_latest(registry)


def objectives(stack: Stack, objective_s: float | None) -> dict[tuple[str, str, str], float]:
    """By (stack, variant, bucket): the objective, at the first bound of the engine's histogram that holds it."""
    found: dict[tuple[str, str, str], float] = {}
    for variant in stack.variants if objective_s else ():
        bounds = adapter_of(stack, variant).tpot_bounds_s
        if bound := next((bound for bound in bounds if bound >= (objective_s or 0.0)), None):
            found[stack.name, variant, str(float(bound))] = bound  # written as Python's client library writes `le`
    return found


def families(runs: Sequence[Recorded], objectives_s: Mapping[tuple[str, str, str], float]) -> list[Metric]:
    """All metrics; where two runs measured the same place, the later one in the list counts."""
    made = {name: GaugeMetricFamily(name, text, labels=LABELS[name]) for name, text in _TEXTS.items()}
    samples: dict[str, dict[tuple[str, ...], float]] = {name: {} for name in made}
    for run in runs:
        for name, labels, value in _samples(run):
            samples[name][labels] = value
    samples[s.TPOT_OBJECTIVE] = dict(objectives_s.items())
    for name, found in samples.items():
        for labels, value in found.items():
            made[name].add_metric(list(labels), value)
    return list(made.values())


_PLACE = ("stack", "variant", "workload", "band")
LABELS: dict[str, tuple[str, ...]] = {
    s.BASELINE_TPOT: ("stack", "workload", "band"),
    s.CELL_TPOT: _PLACE,
    s.CELL_THROUGHPUT: _PLACE,
    s.CELL_TOKENS_PER_STEP: _PLACE,
    s.CELL_ENDED: ("stack", "variant", "workload", "concurrency", "status", "cell"),
    s.PREDICTED_TPOT: _PLACE,
    s.SPECULATIVE_TOKENS: ("stack", "variant"),
    s.SCHEDULE_TOKENS: ("stack", "variant", "band"),
    s.ACCEPTANCE_FLOOR: ("stack", "variant"),
    s.TPOT_OBJECTIVE: ("stack", "variant", "le"),
}


def _samples(run: Recorded) -> Iterable[tuple[str, tuple[str, ...], float]]:
    for place, figures in run.places.items():
        where = (run.stack, place.variant, place.workload, place.band)
        baseline = place.variant == BASELINE
        tpot = (s.BASELINE_TPOT, (run.stack, place.workload, place.band)) if baseline else (s.CELL_TPOT, where)
        known = (
            (*tpot, figures.tpot_s),
            (s.CELL_THROUGHPUT, where, figures.throughput_tok_s),
            (s.CELL_TOKENS_PER_STEP, where, figures.tokens_per_step),
        )
        yield from ((name, labels, value) for name, labels, value in known if value is not None)
    for place, tpot_s in run.predicted_tpot_s.items():
        yield s.PREDICTED_TPOT, (run.stack, place.variant, place.workload, place.band), tpot_s
    for cell in run.ended[-_MOMENTS:]:
        moment = (run.stack, cell.variant, cell.workload, str(cell.concurrency), cell.status, cell.cell_id)
        yield s.CELL_ENDED, moment, cell.at
    yield from ((s.SPECULATIVE_TOKENS, (run.stack, variant), k) for variant, k in run.k.items())
    yield from ((s.SCHEDULE_TOKENS, (run.stack, *key), k) for key, k in run.schedule.items())
    yield from ((s.ACCEPTANCE_FLOOR, (run.stack, variant), floor) for variant, floor in run.floors.items())
