"""Acceptance of a head when it is served: held-out prompts, greedy, the engine's own counters."""

from __future__ import annotations

from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx

from outrider.engine import adapter
from outrider.train.errors import TrainError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from outrider.engine import EngineScrape, SpecCounters

_TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Acceptance over a set of requests.

    Attributes:
        requests: requests that were answered.
        drafts: steps at which something was drafted.
        length: acceptance length, 1 + accepted/drafts.
        per_position: unconditional acceptance by position.
        conditional: acceptance by position given that the one before was accepted.
    """

    requests: int
    drafts: float
    length: float
    per_position: tuple[float, ...]
    conditional: tuple[float, ...]


def acceptance(counters: SpecCounters, requests: int) -> Acceptance:
    """From counter differences.

    Raises:
        TrainError: nothing was drafted.
    """
    length = counters.acceptance_length
    if length is None:
        raise TrainError(
            "the served head drafted nothing",
            evidence=f"{requests} requests, drafts counter 0",
            next_step="look at the engine's start-up log: is speculation on?",
        )
    return Acceptance(requests, counters.drafts, length, counters.per_position, counters.per_position_conditional)


def measure(
    url: str, engine: str, model: str, prompts: Sequence[Mapping[str, Any]], *, max_tokens: int, concurrency: int
) -> dict[str, Acceptance]:
    """Send held-out prompts category by category.

    Returns:
        Acceptance by category, and over everything under `all`.
    """
    by_category: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for prompt in prompts:
        by_category[prompt["category"]].append(prompt)
    found: dict[str, Acceptance] = {}
    with httpx.Client(base_url=url, timeout=_TIMEOUT_S, limits=httpx.Limits(max_connections=concurrency)) as client:
        first = _counters(client, engine)
        for category, rows in sorted(by_category.items()):
            before = _counters(client, engine)
            with ThreadPoolExecutor(concurrency) as pool:
                list(pool.map(lambda row: _ask(client, model, row, max_tokens), rows))
            found[category] = acceptance(_counters(client, engine).since(before), len(rows))
        found["all"] = acceptance(_counters(client, engine).since(first), len(prompts))
    return found


def _ask(client: httpx.Client, model: str, row: Mapping[str, Any], max_tokens: int) -> None:
    messages: list[Mapping[str, str]] = []
    for message in row["messages"]:
        messages.append(message)
        if message["role"] == "user":
            break  # follow-up turns would need the target's own answers
    body = {"model": model, "messages": messages, "max_tokens": max_tokens, "temperature": 0.0}
    client.post("/v1/chat/completions", json=body).raise_for_status()


def _counters(client: httpx.Client, engine: str) -> SpecCounters:
    facts = adapter(engine)
    scrape: EngineScrape = facts.read_metrics(client.get("/metrics").raise_for_status().text)
    if scrape.spec is None:
        raise TrainError(
            "the engine that serves the head publishes no speculation counters",
            evidence=f"{client.base_url}metrics",
            next_step="look at its start-up log: the head was probably not loaded",
        )
    return scrape.spec
