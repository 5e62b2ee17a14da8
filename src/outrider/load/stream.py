"""What a streamed completion says: text, tokens, and how it ended.

Pure and incremental: `feed` takes the body's bytes as the socket gave them, with the time of the read. Both
`/v1/chat/completions` and `/v1/completions` are understood without being told which.
"""

from __future__ import annotations

import hashlib
from typing import Any

import orjson

from outrider.load.outcome import Outcome, of_finish
from outrider.load.sse import MAX_EVENT_BYTES, EventTooLargeError, SseDecoder
from outrider.load.timing import TokenClock

TEXT_KEPT = 16 * 1024  # characters of a request's text kept for the repetition check
_DIGEST_EVERY = 64  # deltas
_DELTA_TEXT = ("content", "reasoning", "reasoning_content", "refusal")


class StreamReader:
    """One response's events.

    Attributes:
        clock: arrival times of tokens.
        finish_reason: the last one seen.
        prompt_tokens: the server's count, None if it never said.
        done: `[DONE]` was seen.
        error: first fault's text, empty if none.
        tokens_seen: tokens that arrived so far (live view; `clock.total_tokens` is the final word).
    """

    __slots__ = (
        "_decoder",
        "_digest",
        "_fault",
        "_fresh",
        "_kept",
        "_room",
        "_text_seen",
        "clock",
        "done",
        "error",
        "finish_reason",
        "prompt_tokens",
        "tokens_seen",
    )

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self.clock = TokenClock()
        self.finish_reason: str | None = None
        self.prompt_tokens: int | None = None
        self.done = False
        self.error = ""
        self.tokens_seen = 0
        self._decoder = SseDecoder(max_event_bytes)
        self._fresh: list[str] = []
        self._digest = hashlib.sha256()
        self._fault: Outcome | None = None
        self._kept: list[str] = []
        self._room = TEXT_KEPT
        self._text_seen = False

    def feed(self, data: bytes, at: float) -> int:
        """Take in bytes of the body that were read at `at`; returns how many tokens they brought.

        An event that cannot be read becomes the request's outcome, and reading goes on behind it; only an
        oversized event raises (EventTooLargeError), because what follows it cannot be told from it.
        """
        tokens = 0
        try:
            for payload in self._decoder.feed(data):
                tokens += self._event(payload, at)
        except EventTooLargeError as error:
            self.fault(Outcome.EVENT_TOO_LARGE, str(error))
            raise
        self.tokens_seen += tokens
        return tokens

    def fault(self, outcome: Outcome, text: str) -> None:
        """Record what went wrong; the first fault is the request's outcome."""
        if self._fault is None:
            self._fault, self.error = outcome, text[:500]

    def _event(self, payload: bytes, at: float) -> int:
        if payload == b"[DONE]":
            self.done = True
            return 0
        if not payload:
            return 0
        try:
            event = orjson.loads(payload)
            if event.get("error"):
                self.fault(Outcome.ERROR_EVENT, orjson.dumps(event["error"]).decode())
                return 0
            return self._completion(event, at)
        except orjson.JSONDecodeError as error:
            self._unreadable(payload, str(error))
        except (TypeError, AttributeError, ValueError, KeyError, IndexError) as error:
            self.fault(Outcome.MALFORMED_JSON, f"an event has another shape ({error}): {payload[:80]!r}")
        return 0

    def _unreadable(self, payload: bytes, message: str) -> None:
        try:
            payload.decode()
        except UnicodeDecodeError as error:
            self.fault(Outcome.NOT_UTF8, f"{error}: {payload[:80]!r}")
        else:
            self.fault(Outcome.MALFORMED_JSON, f"{message}: {payload[:80]!r}")

    def _completion(self, event: dict[str, Any], at: float) -> int:
        usage = event.get("usage")
        tokens: int | None = None
        if usage:
            tokens = usage.get("completion_tokens")
            prompt_tokens = usage.get("prompt_tokens")
            if prompt_tokens is not None:
                self.prompt_tokens = prompt_tokens
        choices = event.get("choices")
        if not choices:
            if tokens is not None:
                self.clock.final(int(tokens))
            return 0
        choice = choices[0]
        finish = choice.get("finish_reason")
        if finish:
            self.finish_reason = finish
        delta = choice.get("delta")
        text = choice.get("text") if delta is None else _delta_text(delta)
        if text:
            self._text_seen = True
            self._keep(text)
        return self.clock.event(at, tokens, text=bool(text), finish=bool(finish))

    def _keep(self, text: str) -> None:
        self._fresh.append(text)
        if len(self._fresh) >= _DIGEST_EVERY:
            self._digest_fresh()

    def _digest_fresh(self) -> None:
        """Move text from `_fresh` into the digest and the kept sample."""
        text = "".join(self._fresh)
        self._fresh.clear()
        self._digest.update(text.encode("utf-8", "surrogatepass"))
        if self._room > 0:
            self._kept.append(text[: self._room])
            self._room -= len(text)

    def close(self) -> None:
        """The body ended: accept an end marker whose blank line is missing."""
        if self._decoder.leftover() == b"[DONE]":
            self.done = True

    @property
    def text(self) -> str:
        """The first TEXT_KEPT characters of the output, deltas of every kind in order of arrival."""
        self._digest_fresh()
        return "".join(self._kept)

    @property
    def text_sha256(self) -> str:
        """Digest of the whole output's UTF-8."""
        self._digest_fresh()
        return self._digest.hexdigest()

    def outcome(self) -> Outcome:
        """How the request ended, as far as the body tells; call after `close`."""
        if self._fault is not None:
            return self._fault
        if self.finish_reason is None:
            return Outcome.NO_FINISH if self.done else Outcome.CUT_OFF
        ended = of_finish(self.finish_reason)
        if ended.ok and not self.done:
            return Outcome.MISSING_DONE
        if ended.ok and not self._text_seen and not self._may_be_silent(ended):
            return Outcome.TOKENS_WITHOUT_TEXT
        return ended

    def _may_be_silent(self, ended: Outcome) -> bool:
        """An answer without text is real if it has no token, or one that ends the sequence."""
        return (self.clock.total_tokens or 0) <= (1 if ended is Outcome.STOP else 0)


def _delta_text(delta: dict[str, Any]) -> str:
    """Text of a chat delta, whatever field carries it."""
    content = delta.get("content")
    if content and len(delta) == 1:
        return str(content)
    text = "".join(str(delta[name]) for name in _DELTA_TEXT if delta.get(name))
    for call in delta.get("tool_calls") or ():
        function = call.get("function") or {}
        text += (function.get("name") or "") + (function.get("arguments") or "")
    return text
