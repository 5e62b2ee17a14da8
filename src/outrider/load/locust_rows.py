"""A finished request as rows of Locust's statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from outrider.load.client import Exchange


def fire_rows(events: Any, name: str, exchange: Exchange) -> None:
    """Report one request: a row for the whole of it, one for TTFT and one for TPOT.

    Locust counts each row as a request, so its "Aggregated" line is not the request rate; the row of type
    `SSE` is. Locust rounds to whole milliseconds above 100 ms only in its percentiles.
    """
    ok = exchange.outcome.ok
    error = None if ok else RequestFailed(f"{exchange.outcome.value}: {exchange.error}")
    length = exchange.reader.clock.total_tokens or 0
    _fire(events, "SSE", name, exchange.e2e_s or 0.0, length, error)
    if not ok:
        return
    for kind, value in (("TTFT", exchange.ttft_s), ("TPOT", exchange.reader.clock.tpot_s)):
        if value is not None:
            _fire(events, kind, name, value, 0, None)


def _fire(events: Any, kind: str, name: str, seconds: float, length: int, error: Exception | None) -> None:
    events.request.fire(
        request_type=kind,
        name=name,
        response_time=seconds * 1e3,
        response_length=length,
        exception=error,
        context={},
    )


class RequestFailed(Exception):  # noqa: N818 - Locust shows the class's name to its users
    """Why a request is in Locust's failure list."""
