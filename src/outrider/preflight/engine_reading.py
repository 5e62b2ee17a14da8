"""Reads a running engine: its models, its metrics, and its start-up log if there is one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx

from outrider.engine import adapter
from outrider.errors import EngineError
from outrider.preflight.checks.running import Running

if TYPE_CHECKING:
    from pathlib import Path


def read_running(engine: str, url: str, *, log: Path | None = None, timeout_s: float = 10.0) -> Running:
    """Read what can be read; what cannot be becomes a fault in the result, never an exception.

    Args:
        engine: name of the engine's adapter.
        url: base URL of the server, without `/v1`.
        log: its start-up log.
        timeout_s: seconds for each request.
    """
    base = url.rstrip("/").removesuffix("/v1")
    facts = adapter(engine)
    faults: list[tuple[str, str]] = []
    models: list[dict[str, Any]] | None = None
    scrape = None
    with httpx.Client(timeout=timeout_s) as client:
        try:
            answer = client.get(f"{base}/v1/models")
            answer.raise_for_status()
            models = [entry for entry in answer.json()["data"] if isinstance(entry, dict)]
        except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError, TypeError) as error:
            faults.append((f"{base}/v1/models", str(error) or type(error).__name__))
        try:
            answer = client.get(f"{base}/metrics")
            answer.raise_for_status()
            scrape = facts.read_metrics(answer.text)
        except (httpx.HTTPError, httpx.InvalidURL, EngineError) as error:
            faults.append((f"{base}/metrics", " ".join(str(error).split()) or type(error).__name__))
    startup = None
    if log is not None:
        try:
            with log.open(encoding="utf-8", errors="replace") as lines:
                startup = facts.startup_facts(lines)
        except OSError as error:
            faults.append((str(log), str(error.strerror)))
    return Running(base, models, scrape, startup, tuple(faults))
