"""A request on its way, and what is known when it has come back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from outrider.load.client import Exchange
    from outrider.load.result import Phase
    from outrider.load.workloads import Prompt


@dataclass(frozen=True, slots=True)
class Admitted:
    """A request that is about to be sent.

    Attributes:
        index: order of sending over all phases.
        phase: which part of the test it belongs to.
        prompt: what is asked.
        body: the request's JSON.
    """

    index: int
    phase: Phase
    prompt: Prompt
    body: bytes


@dataclass(frozen=True, slots=True)
class Finished:
    """A request that has ended.

    Attributes:
        request: what was sent.
        exchange: what came of it.
        due_at: time from which lateness counts; None for a user's first request.
        scheduled: `due_at` is the schedule of an open loop.
        inside: it ended in the window, whatever its phase.
    """

    request: Admitted
    exchange: Exchange
    due_at: float | None
    scheduled: bool
    inside: bool
