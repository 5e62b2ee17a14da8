"""Small pieces of PromQL that rules and panels are put together from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outrider.engine import adapters
from outrider.observe.series import BY, WINDOW
from outrider.stack.names import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Sequence


def of_engines(figure: str, *, by: str = BY, window: str = WINDOW) -> str:
    """A figure from whichever engine publishes it.

    Raises:
        ValueError: no engine does; a typing mistake.
    """
    asked = [q for adapter in adapters() if (q := adapter.metrics_query(figure, by=by, window=window))]
    if not asked:
        msg = f"no engine publishes {figure}{did_you_mean(figure, ['generation_tokens', 'accepted_tokens'])}"
        raise ValueError(msg)
    return either(asked)


def either(alternatives: Sequence[str]) -> str:
    """The union of vectors whose labels do not meet; the first wins where they do."""
    return "\nor ".join(alternatives)


def ratio(above: str, below: str, *, on: str = BY) -> str:
    """A quotient that is absent, not NaN or infinite, where there is nothing to divide by."""
    return f"{above} / on ({on}) ({below} > 0)"


def where(series: str, condition: str, *, on: str = BY) -> str:
    """The series, only where the condition has a sample."""
    return f"{series} and on ({on}) ({condition})"


def quantile(share: float, buckets: str, count: str, *, by: str = BY) -> str:
    """A percentile of a histogram, absent without observations (of none, Prometheus says NaN)."""
    return where(f"histogram_quantile({share:g}, {buckets})", f"{count} > 0", on=by)
