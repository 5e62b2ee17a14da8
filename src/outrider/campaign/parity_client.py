"""Asks an OpenAI-compatible endpoint greedily and keeps the answers: the I/O of `outrider parity`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import httpx
from pydantic import BaseModel, ConfigDict

from outrider.errors import LoadError

if TYPE_CHECKING:
    from outrider.load.workloads import Message

Kind = Literal["prompt", "prompt-again", "task"]
Progress = Callable[[int, int], None]
READ_TIMEOUT_S = 600.0
"""Until an unstreamed answer arrives; a large model under load may take minutes."""

MOST_FAILURES = 0.05
"""Share of requests that may fail. Engines fail on hard requests first, so the rest is not a fair sample."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One greedy request.

    Attributes:
        kind: what the answer is for.
        id: of the prompt or task.
        messages: the conversation.
        max_tokens: limit of output tokens.
    """

    kind: Kind
    id: str
    messages: tuple[Message, ...]
    max_tokens: int

    def again(self) -> Ask:
        """The same request for the noise floor."""
        return replace(self, kind="prompt-again")


class Answer(BaseModel):
    """What came back.

    Attributes:
        text: the content.
        reasoning: text of a reasoning model before its content; empty for others.
        token_ids: ids of all output tokens, None if the server does not return them.
        finish_reason: `stop`, `length`, ...
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    text: str
    reasoning: str = ""
    token_ids: tuple[int, ...] | None = None
    finish_reason: str | None = None

    @property
    def full_text(self) -> str:
        """All that was generated."""
        return self.reasoning + self.text


class Answers(BaseModel):
    """All answers of one variant; its JSON can be kept until the other variant has been asked.

    Attributes:
        by_kind: kind of request, then id, to the answer.
        failures: `id: cause` of requests without an answer.
    """

    model_config = ConfigDict(extra="forbid")
    by_kind: dict[Kind, dict[str, Answer]]
    failures: list[str] = []

    def of(self, kind: Kind) -> Mapping[str, Answer]:
        """Answers of one kind by id."""
        return self.by_kind.get(kind, {})

    @property
    def has_token_ids(self) -> bool:
        """Whether every answer came with token ids."""
        return all(a.token_ids is not None for answers in self.by_kind.values() for a in answers.values())


async def ask_all(
    url: str,
    model: str,
    asks: Sequence[Ask],
    *,
    concurrency: int,
    extra_body: Mapping[str, object],
    progress: Progress | None,
    transport: httpx.AsyncBaseTransport | None,
) -> Answers:
    """Send every request, at most `concurrency` at a time, in the given order.

    Raises:
        LoadError: the endpoint is absent, refuses the first request, or leaves more than 5 % unanswered.
    """
    base = url.rstrip("/").removesuffix("/v1")
    timeout = httpx.Timeout(READ_TIMEOUT_S, connect=10.0)
    async with httpx.AsyncClient(base_url=base, timeout=timeout, transport=transport, trust_env=False) as client:
        body = {"model": model, "temperature": 0, "stream": False, **extra_body}
        body |= await _token_id_field(client, body, asks[0])
        return await _gather(client, body, asks, concurrency, progress)


async def _token_id_field(client: httpx.AsyncClient, body: Mapping[str, object], first: Ask) -> dict[str, object]:
    """`return_token_ids` if the server takes it; this first request also proves the endpoint and the model."""
    field: dict[str, object] = {"return_token_ids": True}
    response = await _post(client, {**body, **field, "messages": list(first.messages), "max_tokens": 1})
    if response.status_code in {400, 422}:  # servers that forbid unknown fields
        field = {}
        response = await _post(client, {**body, "messages": list(first.messages), "max_tokens": 1})
    if response.status_code != httpx.codes.OK:
        raise LoadError(
            f"an endpoint refuses requests with status {response.status_code}",
            evidence=f"{response.url}: {response.text[:300]}",
            next_step="check the URL and the served model name",
        )
    return field


async def _post(client: httpx.AsyncClient, body: Mapping[str, object]) -> httpx.Response:
    try:
        return await client.post("/v1/chat/completions", json=body)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise LoadError(
            f"an endpoint cannot be reached: {type(error).__name__}",
            evidence=f"{client.base_url}: {error}",
            next_step="serve the variant first, and wait until it is ready",
        ) from error


async def _gather(
    client: httpx.AsyncClient,
    body: Mapping[str, object],
    asks: Sequence[Ask],
    concurrency: int,
    progress: Progress | None,
) -> Answers:
    answers = Answers(by_kind={})
    waiting = iter(asks)
    done = 0

    async def work() -> None:
        nonlocal done
        for ask in waiting:
            try:
                answer = await _answer(client, body, ask)
            except (LoadError, httpx.HTTPError, ValueError) as error:
                cause = error.cause if isinstance(error, LoadError) else f"{type(error).__name__}: {error}"
                answers.failures.append(f"{ask.id}: {cause}")
            else:
                answers.by_kind.setdefault(ask.kind, {})[ask.id] = answer
            done += 1
            if progress:
                progress(done, len(asks))

    async with asyncio.TaskGroup() as group:
        for _ in range(max(1, concurrency)):
            group.create_task(work())
    if len(answers.failures) > MOST_FAILURES * len(asks):
        raise LoadError(
            f"an endpoint left {len(answers.failures)} of {len(asks)} requests unanswered",
            evidence=f"{client.base_url}: {answers.failures[0]}",
            next_step="read the engine's log; quality cannot be judged on what is left",
        )
    answers.failures.sort()
    return answers


async def _answer(client: httpx.AsyncClient, body: Mapping[str, object], ask: Ask) -> Answer:
    response = await client.post(
        "/v1/chat/completions", json={**body, "messages": list(ask.messages), "max_tokens": ask.max_tokens}
    )
    if response.status_code != httpx.codes.OK:
        raise LoadError(f"status {response.status_code}: {response.text[:200]}")
    return _read(response.json())


def _read(payload: Any) -> Answer:
    """Take the first choice of a chat completion; ValueError if it is none."""
    try:
        choice = payload["choices"][0]
        message = choice["message"]
        return Answer(
            text=message.get("content") or "",
            reasoning=message.get("reasoning") or message.get("reasoning_content") or "",
            token_ids=choice.get("token_ids"),
            finish_reason=choice.get("finish_reason"),
        )
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise ValueError("the response is not a chat completion") from error
