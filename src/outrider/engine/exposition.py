"""Reading a Prometheus text, and asking Prometheus for the same figures: what the engines' adapters share."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING

from prometheus_client.parser import text_string_to_metric_families

from outrider.engine.base import Histogram
from outrider.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    # Figure -> its names, newest first, each with the first version that had it. Counters are named as the parser
    # reports samples, with `_total`.
    Names = Mapping[str, Sequence[tuple[str, str]]]


class Samples:
    """All samples of an exposition by name, as (labels, value) pairs.

    Args:
        text: one Prometheus exposition.
        names: the engine's figures.

    Raises:
        EngineError: the text is no exposition.
    """

    def __init__(self, text: str, names: Names) -> None:
        self._names = names
        self._by_name: defaultdict[str, list[tuple[dict[str, str], float]]] = defaultdict(list)
        try:
            for family in text_string_to_metric_families(text):
                for sample in family.samples:
                    self._by_name[sample.name].append((sample.labels, sample.value))
        except (ValueError, KeyError, IndexError) as error:
            raise EngineError(
                "the metrics page is no Prometheus text",
                evidence=f"{error}; begins {text[:120]!r}",
                next_step="check that the URL is the engine's own /metrics",
            ) from error

    def of(self, figure: str, suffix: str = "") -> list[tuple[dict[str, str], float]]:
        """Samples of a figure, by the newest of its names that is there."""
        for _, name in self._names[figure]:
            if found := self._by_name.get(name + suffix):
                return found
        return []

    def total(self, figure: str, suffix: str = "") -> float | None:
        """Sum over label sets (one series an engine core); None if the figure is not published."""
        found = self.of(figure, suffix)
        return math.fsum(value for _, value in found) if found else None

    def mean(self, figure: str) -> float | None:
        """Mean over label sets; None if the figure is not published."""
        found = self.of(figure)
        return math.fsum(value for _, value in found) / len(found) if found else None

    def by(self, figure: str, label: str) -> dict[str, float]:
        """Sums by the values of one label."""
        out: defaultdict[str, float] = defaultdict(float)
        for labels, value in self.of(figure):
            out[labels.get(label, "")] += value
        return dict(out)

    def histogram(self, figure: str) -> Histogram | None:
        """A histogram summed over engine cores; None if the figure is not published."""
        buckets: defaultdict[float, float] = defaultdict(float)
        for labels, value in self.of(figure, "_bucket"):
            buckets[float(labels["le"])] += value
        total, count = self.total(figure, "_sum"), self.total(figure, "_count")
        if not buckets or total is None or count is None:
            return None
        bounds = tuple(sorted(buckets))
        return Histogram(bounds, tuple(buckets[b] for b in bounds), total, count)

    def require(self, prefix: str, engine: str, hint: str) -> None:
        """Refuse a page that is another program's.

        Raises:
            EngineError: no metric begins with the engine's prefix.
        """
        if not any(name.startswith(prefix) for name in self._by_name):
            raise EngineError(
                f"the metrics page has no {engine} metrics",
                evidence=f"{len(self._by_name)} metric names, none begins with {prefix}",
                next_step=f"check the port; {hint}",
            )


# What rules and dashboards ask of every engine. Rates are per second; histograms are asked for as three figures.
COUNTERS = (
    *("generation_tokens", "prompt_tokens", "first_tokens", "finished", "preemptions", "prefix_queries"),
    *("prefix_hits", "drafts", "draft_tokens", "accepted_tokens"),
)
GAUGES = ("running", "waiting", "kv_cache_usage", "start_time")
HISTOGRAMS = ("ttft", "tpot", "itl", "e2e")
_GAUGE_QUERIES = {
    "kv_cache_usage": "max by ({by}) ({name})",
    # Every Python process publishes it under this name; engines are told by their target's label.
    "start_time": 'max by ({by}) ({name}{{variant!=""}})',
}
QUERIED = (
    *COUNTERS,
    *GAUGES,
    "accepted_per_pos",
    *(f"{name}_{part}" for name in HISTOGRAMS for part in ("bucket", "sum", "count")),
)


def names_for(names: Names, version: str) -> dict[str, str]:
    """The metric name of each figure in one engine version (`"0.32.0"`)."""
    wanted = _numbers(version)
    return {
        figure: next((name for since, name in history if _numbers(since) <= wanted), history[0][1])
        for figure, history in names.items()
    }


def rate_sum(name: str, by: str, window: str) -> str:
    """PromQL: increase per second of a counter, summed over engine cores and instances."""
    return f"sum by ({by}) (rate({name}[{window}]))"


def generic_query(names: Names, figure: str, by: str, window: str) -> str | None:
    """PromQL of a figure that is published under a name of its own; None if it is not.

    Only today's name is asked for: a rule that also tried names of versions long gone would hide that they are gone.
    """
    base, _, part = figure.rpartition("_")
    histogram = base in HISTOGRAMS
    known = base if histogram else figure
    if known not in names:
        return None
    name = names[known][0][1]
    if figure in GAUGES:
        return _GAUGE_QUERIES.get(figure, "sum by ({by}) ({name})").format(by=by, name=name)
    extra = {"bucket": "le, ", "pos": "position, "}.get(part, "")
    return rate_sum(f"{name}_{part}" if histogram else name, extra + by, window)


def metric_names(names: Names) -> set[str]:
    """Today's name of every figure, histograms with their suffixes: what rules may name."""
    found: set[str] = set()
    for figure, history in names.items():
        name = history[0][1]
        found |= {f"{name}_{part}" for part in ("bucket", "sum", "count")} if figure in HISTOGRAMS else {name}
    return found


def old_names(names: Names) -> set[str]:
    """Names that today's version has dropped: read from old engines, never asked for."""
    return {name for history in names.values() for _, name in list(history)[1:]}


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:3] if part.isdigit())
