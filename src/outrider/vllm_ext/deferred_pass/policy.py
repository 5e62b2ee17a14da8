"""When passes of the drafter are put off and made up for; what a pass is made of is the model runner's."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

Step = TypeVar("Step")


class Deferred(ABC, Generic[Step]):
    """Keeps the inputs of passes put off, one step after the other of the same requests.

    A pass is put off if nothing is to be drafted and each request has one new token: a plain decode step. It is made up
    for before anything could read or replace what it writes: before the next step that drafts or holds a prefill,
    before a step of other requests than these, whose blocks may have been given away by then, and at latest after so
    many steps. Where not even two steps fit into a pass, none is put off. What is written then is what the engine would
    have written step by step.

    Args:
        most_steps: passes put off at most.
        most_tokens: tokens of one pass at most.

    Attributes:
        put_off: passes put off so far.
        made_up: passes that made up for them.
    """

    def __init__(self, *, most_steps: int, most_tokens: int) -> None:
        self._most_steps, self._most_tokens = most_steps, most_tokens
        self._steps: list[Step] = []
        self._of: list[str] = []
        self.put_off = 0
        self.made_up = 0

    def before_step(self, requests: Collection[str]) -> None:
        """Before the target runs a step of these requests: what was put off for others comes first.

        Their blocks may belong to somebody else in that step, and with several groups of caches over one memory to
        layers of the target.
        """
        if self._steps and (len(requests) != len(self._of) or not all(one in requests for one in self._of)):
            self.catch_up()

    def takes(self, requests: Sequence[str], *, plain: bool) -> bool:
        """Whether a step's pass can be put off, `plain` being a decode step without drafts; `keep` follows then."""
        room = 2 * len(requests) <= self._most_tokens
        if not plain or not room:
            self.catch_up()
            return False
        if requests != self._of:
            self.catch_up()
            self._of = list(requests)
        return True

    def keep(self, step: Step) -> None:
        """Put the pass of a step off whose requests are those of `takes`."""
        self._steps.append(step)
        self.put_off += 1
        if len(self._steps) >= self._most_steps or (len(self._steps) + 1) * len(self._of) > self._most_tokens:
            self.catch_up()

    def catch_up(self) -> None:
        """Run the passes put off as one: of each request, the tokens of these steps one after the other."""
        steps, requests = self._steps, self._of
        if not steps:
            return
        self._steps, self._of = [], []
        self.run(steps, requests)
        self.made_up += 1

    def forget(self) -> None:
        """Give up what was put off: the drafter will not know these tokens, and its drafts are refused more often."""
        self._steps, self._of = [], []

    @abstractmethod
    def run(self, steps: list[Step], requests: list[str]) -> None:
        """One pass over all steps of these requests."""
