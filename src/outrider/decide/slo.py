"""What an answer must keep to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from outrider.decide.errors import DecideError

if TYPE_CHECKING:
    from outrider.decide.options import Option

Objective = Literal["tpot", "throughput"]
Verdict = Literal["meets", "at risk", "misses", "not known"]
PERCENTILES = (50, 90, 95, 99)


@dataclass(frozen=True, slots=True)
class Slo:
    """Limits on latency, and what is optimised within them.

    Attributes:
        objective: `tpot`: fastest for each user at every load; `throughput`: most tokens per second of the node.
        percentile: of requests that must keep the limits; 0 means their mean.
        max_tpot_s, max_ttft_s: limits in seconds; None for none.
    """

    objective: Objective = "tpot"
    percentile: int = 0
    max_tpot_s: float | None = None
    max_ttft_s: float | None = None

    def __post_init__(self) -> None:
        if self.percentile not in {0, *PERCENTILES}:
            raise DecideError(
                f"load tests do not keep percentile {self.percentile}",
                next_step=f"one of: {', '.join(map(str, PERCENTILES))}",
            )
        if any(limit is not None and limit <= 0 for limit in (self.max_tpot_s, self.max_ttft_s)):
            raise DecideError("a latency limit must be above 0")

    def judge(self, option: Option) -> Verdict:
        """Whether an option keeps the limits; `at risk` where the limit lies within its interval.

        TTFT is not predicted: a limit on it can be judged where it was measured, else the answer is `not known`.
        """
        found: Verdict = "meets"
        if self.max_tpot_s is not None:
            tail = option.tail(self.percentile)
            if option.tpot_s.mid * tail > self.max_tpot_s:
                return "misses"
            if option.tpot_s.high * tail > self.max_tpot_s:
                found = "at risk"
        if self.max_ttft_s is not None:
            ttft = option.ttft(self.percentile)
            if ttft is None:
                return "not known"
            if ttft > self.max_ttft_s:
                return "misses"
        return found
