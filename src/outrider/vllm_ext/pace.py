"""How often a step is taken in whole, so that the controller's own time stays below a share of a step's, however short.

A step that is only followed keeps what the next one needs: when it ended, and what it drafted.
"""

from __future__ import annotations

import math

# What the controller may take of the time of steps; half a per cent is promised.
SHARE = 0.003
# One step in so many is taken in at least: acceptance must not be learnt too late.
LONGEST = 16
# Seconds of decode steps below which nothing is concluded from them.
_ENOUGH_S = 0.2
# One round of steps in so many is measured.
_MEASURED = 8
# What a step that is only followed takes of one taken in whole, until that has been measured.
_LIGHT = 0.15


class Pace:
    """Counts steps and what they take; pure.

    Reading CPU time costs as much as following a step. A round is a step that is taken in and those that are only
    followed until the next one; in one round of eight, the former and the first of the latter are measured.

    Attributes:
        stride: one step in so many is taken in whole.
        weight: how many steps the present one is measured for; 0 where it is not measured.
        total_s: CPU seconds of all steps.
        followed: decode steps that were only followed.
    """

    __slots__ = (
        "_busy_s", "_light", "_round", "_steps", "_turn", "_whole", "followed", "stride", "total_s", "weight",
    )  # fmt: skip

    def __init__(self) -> None:
        """Every step is taken in until it is known what that costs."""
        self.stride, self.weight = 1, 0
        self.total_s, self.followed = 0.0, 0
        self._turn, self._round = 0, -1
        # Seconds and number, of each kind, measured since the stride was chosen.
        self._whole, self._light = [0.0, 0.0], [0.0, 0.0]
        self._busy_s, self._steps = 0.0, 0.0

    def begin(self) -> bool:
        """Begin a step: whether it is due to be taken in whole."""
        turn, self.weight = self._turn, 0
        self._turn = turn + 1 if turn + 1 < self.stride else 0
        if turn == 0:
            self._round = (self._round + 1) % _MEASURED
        if self._round == 0 and turn < 2:
            self.weight = _MEASURED * (self.stride - 1) if turn else _MEASURED
        return turn == 0

    def spent(self, seconds: float, *, whole: bool) -> None:
        """CPU seconds of a step that was to be measured, and whether it was taken in whole."""
        kind = self._whole if whole else self._light
        kind[0] += seconds
        kind[1] += 1
        self.total_s += seconds * self.weight

    def stepped(self, seconds: float) -> None:
        """The length of a decode step."""
        self._busy_s += seconds
        self._steps += 1

    def choose(self) -> None:
        """Choose the stride from what was measured since the last time; older figures count by half."""
        whole, light = self._whole, self._light
        if self._busy_s < _ENOUGH_S or not whole[1]:
            return
        step_s, dear = self._busy_s / self._steps, whole[0] / whole[1]
        cheap = light[0] / light[1] if light[1] else _LIGHT * dear
        room = SHARE * step_s - cheap
        # (dear + (n - 1) cheap) / n <= SHARE step_s
        least = math.ceil((dear - cheap) / room) if room > 0 else LONGEST
        self.stride, self._turn = min(max(least, 1), LONGEST), 0
        self._busy_s, self._steps = self._busy_s / 2, self._steps / 2
        for kind in (whole, light):
            kind[0], kind[1] = kind[0] / 2, kind[1] / 2
