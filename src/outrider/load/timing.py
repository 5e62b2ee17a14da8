"""Definitions of every latency that Outrider reports. Times are seconds on one monotonic clock.

- **sent**: just before the first byte of the request is written to a connected socket.
- **chunk**: an event that brought tokens. Its time is that of the socket read which completed it, taken
  before any parsing. Tokens of a chunk are the growth of the cumulative `usage.completion_tokens`
  (`continuous_usage_stats`); nothing is re-tokenised.
- **TTFT** = first chunk - sent. A role-only event is not a token.
- **TPOT** = (last chunk - first chunk) / (tokens at the last chunk - tokens of the first chunk). The last
  chunk is the last one at which usage grew: an end-of-sequence token has no text but took a step. A server
  that sends only a final usage gets the field's usual figure, (last event - first event) / (tokens - 1),
  and `token_source` says `final_usage`. None with a single chunk, and where
  one read of the socket brought them all: no time lies between them.
- **ICL** (inter-chunk latency): the gaps between neighbouring chunks. With speculation a chunk carries
  several tokens, so ICL is not TPOT.
- **E2E** = last byte of the response - sent.

Other tools' names for these are in docs/measuring.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

TokenSource = Literal["continuous_usage", "final_usage", "none"]


class TokenClock:
    """Arrival times of one request's tokens.

    Attributes:
        first_at: time of the first chunk; None before it.
        last_at: time of the last chunk.
        first_tokens: tokens in the first chunk (1 where the server does not count chunk by chunk).
        timed_tokens: cumulative tokens at `last_at`.
        total_tokens: the server's final count, None if it never said.
        chunks: events that brought tokens.
        gaps_s: time between neighbouring chunks.
    """

    __slots__ = (
        "_counted",
        "_uncounted",
        "chunks",
        "first_at",
        "first_tokens",
        "gaps_s",
        "last_at",
        "timed_tokens",
        "total_tokens",
    )

    def __init__(self) -> None:
        self.first_at: float | None = None
        self.last_at = 0.0
        self.first_tokens = 0
        self.timed_tokens = 0
        self.total_tokens: int | None = None
        self.chunks = 0
        self.gaps_s: list[float] = []
        self._counted = False  # chunks carry cumulative usage
        self._uncounted = False  # a chunk with text came without usage: the server does not count chunks

    def event(self, at: float, tokens: int | None, *, text: bool, finish: bool) -> int:
        """Take in one event that carries a choice.

        Args:
            at: time of the socket read.
            tokens: cumulative completion tokens in this event; None if it has no usage.
            text: the delta carried text of any kind.
            finish: the event carried a finish reason.

        Returns:
            tokens that arrived with this event, as far as is known now.
        """
        if tokens is not None:
            self.total_tokens = tokens
        if tokens is not None and not self._uncounted:
            grown = tokens - self.timed_tokens
            if grown <= 0:
                return 0
            self._counted = True
            self._chunk(at)
            if self.chunks == 1:
                self.first_tokens = tokens
            self.timed_tokens = tokens
            return grown
        if self._counted or not (text or finish):
            return 0
        if text:
            self._uncounted = True
            self._chunk(at)
            self.first_tokens = 1
            return 1
        if self.chunks:
            self.last_at = at  # the final token may have no text; its step ends here
        return 0

    def _chunk(self, at: float) -> None:
        if self.first_at is None:
            self.first_at = at
        else:
            self.gaps_s.append(at - self.last_at)
        self.last_at = at
        self.chunks += 1

    def final(self, tokens: int) -> None:
        """The server's closing count, in an event without choices."""
        self.total_tokens = tokens

    @property
    def source(self) -> TokenSource:
        """Where token counts come from."""
        if self._counted:
            return "continuous_usage"
        return "none" if self.total_tokens is None else "final_usage"

    @property
    def tpot_s(self) -> float | None:
        """Time per output token; None if it is not defined."""
        if self.first_at is None:
            return None
        at_end = self.timed_tokens if self._counted else self.total_tokens
        after_first = 0 if at_end is None else at_end - self.first_tokens
        span = self.last_at - self.first_at
        # Chunks that one read of the socket brought share its time: between them nothing was measured.
        return span / after_first if after_first > 0 and self.chunks > 1 and span > 0 else None

    def ttft_s(self, sent_at: float) -> float | None:
        """Time to first token; None if no token came."""
        return None if self.first_at is None else self.first_at - sent_at


@dataclass(frozen=True, slots=True)
class Repetition:
    """How much a text repeats itself.

    Attributes:
        words: words in the text.
        unique_bigrams: distinct pairs of neighbouring words / pairs; 1 is no repetition.
    """

    words: int
    unique_bigrams: float


def repetition(text: str) -> Repetition | None:
    """Unique-bigram ratio of a text; None below 16 words, where it says nothing.

    Degenerate output (loops) is easy to draft and inflates acceptance. Text without spaces is taken by
    character.
    """
    words: list[str] | str = text.split()
    if len(words) * 20 < len(text):
        words = text
    if len(words) < 16:
        return None
    pairs = len(words) - 1
    return Repetition(len(words), len(set(pairwise(words))) / pairs)
