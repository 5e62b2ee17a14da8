"""Which requests are measured: warm-up first, then the window, then cool-down until the window has closed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from outrider.load.result import Phase


class Window:
    """Assigns a phase to each request, in the order of sending.

    The first `warmup` requests are warm-up. Then requests are measured until `requests` of them were sent,
    or until `duration_s` after the window opened, whichever comes first. What is sent later is cool-down:
    it keeps the load up until the last measured request ends, at which point the window closes.

    Attributes:
        opened_at: time of the first measured send; None before it.
        ended_at: end of the last measured request so far.
        sent: measured requests sent.
        ended: measured requests ended.
    """

    def __init__(self, warmup: int, requests: int | None, duration_s: float | None) -> None:
        self._warmup_left = warmup
        self._requests = requests
        self._duration_s = duration_s
        self._full = False
        self.opened_at: float | None = None
        self.ended_at = 0.0
        self.sent = 0
        self.ended = 0

    def admit(self, now: float) -> Phase:
        """Phase of a request that is about to be sent."""
        if self._warmup_left > 0:
            self._warmup_left -= 1
            return "warmup"
        if not self._full:
            self._full = self._limit_reached(now)
        if self._full:
            return "cooldown"
        self.sent += 1
        return "measured"

    @property
    def opens_next(self) -> bool:
        """The next request to be admitted is the first measured one."""
        return self._warmup_left == 0 and self.sent == 0 and not self._full

    def _limit_reached(self, now: float) -> bool:
        if self._requests is not None and self.sent >= self._requests:
            return True
        return self._duration_s is not None and self.opened_at is not None and now >= self.opened_at + self._duration_s

    def open(self, now: float) -> None:
        """The first measured request is sent now."""
        if self.opened_at is None:
            self.opened_at = now

    def end(self, phase: Phase, ended_at: float) -> None:
        """A request ended."""
        if phase == "measured":
            self.ended += 1
            self.ended_at = max(self.ended_at, ended_at)

    def exhaust(self) -> None:
        """No more requests will come (a trace is at its end)."""
        self._full = True

    def closed(self, now: float) -> bool:
        """All measured requests have been sent and have ended."""
        if not self._full and self.opened_at is not None:
            self._full = self._limit_reached(now)
        return self._full and self.ended == self.sent

    @property
    def length_s(self) -> float:
        """First measured send to last measured end; 0 if nothing was measured."""
        return max(self.ended_at - self.opened_at, 0.0) if self.opened_at is not None and self.ended else 0.0
