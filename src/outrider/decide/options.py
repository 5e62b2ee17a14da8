"""Ways of serving at a place, measured where that was done and predicted elsewhere."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from outrider.campaign.stats import Interval
from outrider.predict.fit import places_of
from outrider.predict.nearby import cell_noise
from outrider.predict.surface import Wanted, predict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from outrider.predict.observations import Observation
    from outrider.predict.session import Session
    from outrider.predict.surface import Prediction

Source = Literal["measured", "fitted", "prior"]
# A request's percentile over its mean where no cell says: stated, wide of most measured ones.
_TAILS = {0: 1.0, 50: 1.0, 90: 1.25, 95: 1.4, 99: 1.7}
_Z = 1.96
# Cells of one place differ a little in context, because variants answer at different lengths.
_SAME_CONTEXT = 0.25


@dataclass(frozen=True, slots=True)
class Option:
    """One way of serving at one place.

    Attributes:
        variant, k: which; `baseline`, 0 for plain decoding.
        batch, context: the place.
        tpot_s: seconds per output token, mean over requests.
        throughput_tok_s: of all sequences.
        tokens_per_step: what a step yields.
        speedup: against plain decoding at that place; None for baseline.
        break_even: tokens per step at which it would equal plain decoding; None likewise.
        source: `measured`, `fitted` (a model fitted to cells) or `prior` (nothing but the stack).
        extrapolated: more than an octave outside the cells.
        latency: measured percentiles in seconds, as `tpot_p95`, `ttft_mean`, ...
    """

    variant: str
    k: int
    batch: int
    context: float
    tpot_s: Interval
    throughput_tok_s: Interval
    tokens_per_step: float
    speedup: Interval | None
    break_even: Interval | None
    source: Source
    extrapolated: bool = False
    latency: Mapping[str, float] = field(default_factory=dict)

    def tail(self, percentile: int) -> float:
        """TPOT of a percentile of requests over the mean."""
        measured, mean = self.latency.get(f"tpot_p{percentile}"), self.latency.get("tpot_mean")
        return measured / mean if measured and mean else _TAILS[percentile]

    def ttft(self, percentile: int) -> float | None:
        """TTFT of a percentile (0: the mean) in seconds; None where it was not measured."""
        return self.latency.get(f"ttft_p{percentile}" if percentile else "ttft_mean")


# (workload, variant, batch) to a speedup over paired prompts, whose interval is tighter than that of cells' means.
Paired = Mapping[tuple[str, str, int], Interval]


def options_of(
    session: Session, wanted: Sequence[Wanted], cells: Sequence[Observation], paired: Paired | None = None
) -> list[Option]:
    """One option a place: what was measured there, else what the model says.

    Args:
        session: the fitted model.
        wanted: places, baseline among them.
        cells: what was measured, schedules included.
        paired: speedups over paired prompts, where requests were kept.
    """
    predictions = predict(session.fit, wanted, session.draft_bytes, acceptance=session.acceptance)
    measured = _groups(cells, {one.context for one in wanted})
    return [_option(session, one, measured, paired or {}) for one in predictions]


_Key = tuple[str, int, int, float, int]


def _groups(cells: Sequence[Observation], contexts: set[float]) -> dict[_Key, list[Observation]]:
    groups: defaultdict[_Key, list[Observation]] = defaultdict(list)
    for cell in cells:
        if not cell.dynamic:
            near = min(contexts, key=lambda length: _apart(length, cell.context))
            if _apart(near, cell.context) <= _SAME_CONTEXT:
                groups[cell.variant, cell.k, cell.batch, near, cell.context_ranks].append(cell)
    return groups


def _option(session: Session, one: Prediction, measured: Mapping[_Key, list[Observation]], paired: Paired) -> Option:
    at = one.at
    own = measured.get((at.variant, at.k, at.batch, at.context, at.context_ranks), [])
    plain = measured.get(("baseline", 0, at.batch, at.context, at.context_ranks), [])
    own, plain = (_of_workload(group, at.workload) for group in (own, plain))
    if not own or (at.k and not plain):
        # Speculative cells without any plain one say nothing about a gain.
        paired_somewhere = any(not cell.k for cell in session.fit.cells)
        source: Source = "fitted" if one.source != "prior" and paired_somewhere else "prior"
        return Option(
            at.variant, at.k, at.batch, at.context, one.tpot_s, one.throughput_tok_s, one.tokens_per_step,
            one.speedup, one.step_cost_ratio, source, one.extrapolated,
        )  # fmt: skip
    fit, places = session.fit, places_of(session.fit.cells, session.draft_bytes)
    plain_sd = cell_noise(fit, places, speculates=False, ceiling=fit.plain_sd)
    own_sd = cell_noise(fit, places, speculates=True, ceiling=fit.speculative_sd) if at.k else plain_sd
    own_sd /= math.sqrt(len(own))
    rate = _mean([cell.rate for cell in own])
    tokens = _mean([cell.tokens_per_step or one.tokens_per_step for cell in own]) if at.k else 1.0
    speedup = break_even = None
    if at.k:
        sd = math.hypot(own_sd, plain_sd / math.sqrt(len(plain)))
        gain = rate / _mean([cell.rate for cell in plain])
        speedup = paired.get((at.workload, at.variant, at.batch)) or _around(gain, sd, len(own))
        break_even = Interval(tokens / speedup.high, tokens / speedup.mid, tokens / speedup.low, speedup.n)
    latency = {name: value for cell in own for name, value in cell.latency.items()}
    return Option(
        at.variant, at.k, at.batch, at.context, _around(1 / rate, own_sd, len(own)),
        _around(rate * at.batch, own_sd, len(own)), tokens, speedup, break_even, "measured", latency=latency,
    )  # fmt: skip


def _apart(one: float, other: float) -> float:
    """Distance of two contexts in octaves of tokens + 1k."""
    return abs(math.log2((one + 1024) / (other + 1024)))


def _of_workload(cells: Sequence[Observation], workload: str) -> list[Observation]:
    return [cell for cell in cells if not workload or cell.workload == workload]


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _around(mid: float, sd: float, n: int) -> Interval:
    return Interval(mid * math.exp(-_Z * sd), mid, mid * math.exp(_Z * sd), n)
