"""`outrider_utility_*` on the engine's own /metrics, from what its core exports.

The server loads `UtilityMetrics` by `--middleware`, which is the engine's own way to take a class of ours into that
process. It wraps nothing: requests pass as if it were not there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prometheus_client import REGISTRY
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from outrider.vllm_ext.state_file import read_state, state_path

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

_PREFIX = "outrider_utility_"


class StateCollector:
    """Reads the state file at each scrape."""

    def __init__(self, path: Path) -> None:
        """Nothing is read before the first scrape."""
        self._path = path

    def collect(self) -> Iterator[Metric]:
        """The metrics; without a state file only the one that says so."""
        data = read_state(self._path)
        yield _gauge("exported", "1 if the engine core exports its figures", 0 if data is None else 1)
        if data is not None:
            yield from _totals(data)
            yield from _bands(data["bands"])

    def describe(self) -> list[Metric]:
        """Nothing: names need no check against others at registration."""
        return []


class UtilityMetrics:
    """Registers the collector once a process, and gives back the application that it was given."""

    def __new__(cls, app: Any) -> Any:  # noqa: D102 - an ASGI application, unchanged
        register(REGISTRY)
        return app


def register(registry: CollectorRegistry) -> StateCollector:
    """Add the collector to a registry."""
    collector = StateCollector(state_path())
    registry.register(collector)
    return collector


def _totals(data: dict[str, Any]) -> Iterator[Metric]:
    yield _gauge("fault", "1 if the controller gave up and the static schedule is in force", int(bool(data["fault"])))
    yield _gauge("exported_timestamp_seconds", "when the engine core last exported", data["at"])
    overhead = CounterMetricFamily(_PREFIX + "overhead_seconds", "CPU time that the controller took in the engine core")
    overhead.add_metric([], data["overhead_s"])
    yield overhead
    yield _gauge("stride", "one step in so many is taken in while nothing is tried", data["stride"])
    steps = CounterMetricFamily(
        _PREFIX + "steps", "engine steps: clean ones count; followed ones would", labels=["kind"]
    )
    for kind, count in data["steps"].items():
        steps.add_metric([kind], count)
    yield steps
    tokens = GaugeMetricFamily(_PREFIX + "tokens_per_step", "of one request, as accepted lately", labels=["k"])
    for k, value in data["tokens_per_step"].items():
        tokens.add_metric([k], value)
    yield tokens


def _bands(bands: list[dict[str, Any]]) -> Iterator[Metric]:
    in_force = GaugeMetricFamily(_PREFIX + "k", "k in force by batch size", labels=["batch"])
    testing = GaugeMetricFamily(_PREFIX + "phase", "1 for the phase of a band: set or test", labels=["batch", "phase"])
    switches = CounterMetricFamily(_PREFIX + "switches", "changes of the k in force", labels=["batch"])
    tests = CounterMetricFamily(_PREFIX + "tests", "tests begun", labels=["batch"])
    by_k = {
        "utility": GaugeMetricFamily(_PREFIX + "ratio", "utility: speed against k=0", labels=["batch", "k"]),
        "cost": GaugeMetricFamily(_PREFIX + "step_cost_ratio", "step time against k=0", labels=["batch", "k"]),
        "step_s": GaugeMetricFamily(_PREFIX + "step_seconds", "step time", labels=["batch", "k"]),
    }
    for band in bands:
        batch = band["batch"]
        in_force.add_metric([batch], band["k"])
        for phase, active in (("set", band["testing"] is None), ("test", band["testing"] is not None)):
            testing.add_metric([batch, phase], int(active))
        switches.add_metric([batch], band["switches"])
        tests.add_metric([batch], band["tests"])
        for key, family in by_k.items():
            for k, value in band[key].items():
                family.add_metric([batch, k], value)
    yield from (in_force, testing, switches, tests, *by_k.values())


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(_PREFIX + name, text, value=value)
