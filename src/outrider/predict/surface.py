"""Predictions with intervals: step time, rate, speedup and break-even acceptance of each wanted place."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from outrider.campaign.stats import Interval
from outrider.predict.errors import PredictError
from outrider.predict.fit import places_of
from outrider.predict.model import drafted_k, step_parts, step_s
from outrider.predict.nearby import local_correction, octaves_outside
from outrider.predict.places import Places

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from outrider.campaign.resampling import Floats
    from outrider.predict.acceptance import Acceptance
    from outrider.predict.fit import Fit

# Growth of the model's own uncertainty with each octave outside the measured cells, as a share.
_SD_PER_OCTAVE = 0.06
FAR_OCTAVES = 1.0
# Correlation of what the model misses in plain and in speculative steps.
_SHARED = 0.5
# Relative uncertainty of a yield by where it comes from; authors' figures are of other texts (2.97 reported and 2.13
# measured for the flagship's drafter).
_GIVEN_SD, _REPORTED_SD, _NEW_POSITION_SD = 0.05, 0.20, 0.04


@dataclass(frozen=True, slots=True)
class Wanted:
    """A place to predict.

    Attributes:
        variant: `baseline`, or one that speculates.
        k: speculative tokens; 0 for baseline.
        batch: sequences that decode together.
        context: tokens in each one's cache.
        context_ranks: decode context parallelism.
        workload: whose acceptance counts; empty for any.
    """

    variant: str
    k: int
    batch: int
    context: float
    context_ranks: int = 1
    workload: str = ""


@dataclass(frozen=True, slots=True)
class Prediction:
    """What is expected at a place.

    Attributes:
        at: the place.
        step_s: seconds of a step.
        parts_s: seconds of each part of it, of the best setting.
        tokens_per_step: what a step yields.
        tpot_s: seconds per output token of one sequence.
        throughput_tok_s: output tokens per second of all sequences.
        speedup: plain TPOT / this TPOT; None for baseline.
        step_cost_ratio: step / plain step, which is also the break-even number of tokens per step; None likewise.
        source: what the model was fitted to.
        yield_source: where the tokens per step come from.
        octaves_outside: distance from the measured cells; 0 among them.
    """

    at: Wanted
    step_s: Interval
    parts_s: dict[str, float]
    tokens_per_step: float
    tpot_s: Interval
    throughput_tok_s: Interval
    speedup: Interval | None
    step_cost_ratio: Interval | None
    source: str
    yield_source: str
    octaves_outside: float

    @property
    def extrapolated(self) -> bool:
        """Whether it lies far outside what was measured."""
        return self.octaves_outside > FAR_OCTAVES


def predict(
    fit: Fit,
    wanted: Sequence[Wanted],
    draft_bytes: Callable[[str], float],
    *,
    acceptance: Callable[[Wanted], Acceptance | None] = lambda _: None,
    seed: int = 0,
    confidence: float = 0.95,
) -> list[Prediction]:
    """Predict places.

    Args:
        fit: the model.
        wanted: where.
        draft_bytes: variant to the weights that one drafting pass reads.
        acceptance: what a place's drafter achieves; None falls back to what the cells showed.
        seed: of the draws.
        confidence: of the intervals.

    Raises:
        PredictError: nothing says how many tokens a step of a variant yields.
    """
    if not wanted:
        return []
    at = _places(fit, wanted, draft_bytes, plain=False)
    plain_at = _places(fit, wanted, draft_bytes, plain=True)
    cells = places_of(fit.cells, draft_bytes)
    outside = np.maximum(octaves_outside(cells, at), octaves_outside(cells, plain_at))
    yields = [_yield(fit, one, acceptance(one)) for one in wanted]
    tokens = np.array([y[0] for y in yields])
    # Residuals are of rates: a positive one means faster, a shorter step.
    own = step_s(fit.machine, at, fit.factors) * np.exp(-local_correction(fit, cells, at))
    plain = step_s(fit.machine, plain_at, fit.factors) * np.exp(-local_correction(fit, cells, plain_at))
    spread = _Spread(fit, at, plain_at, outside, np.array([y[1] for y in yields]), seed)
    parts = step_parts(fit.machine, at, fit.factors)
    tail = (1 - confidence) / 2

    def interval(mid: float, logs: Floats) -> Interval:
        low, high = np.quantile(logs, (tail, 1 - tail))
        low, mid, high = float(low), float(mid), float(high)
        return Interval(mid * math.exp(min(low, 0.0)), mid, mid * math.exp(max(high, 0.0)), len(fit.cells))

    found = []
    for i, one in enumerate(wanted):
        speculates = one.k > 0
        rate = tokens[i] / own[i]
        tpot = interval(1 / rate, spread.step[:, i] - spread.tokens[:, i])
        throughput = interval(one.batch * rate, spread.tokens[:, i] - spread.step[:, i])
        ratio_logs = spread.step[:, i] - spread.plain[:, i]
        found.append(
            Prediction(
                at=one,
                step_s=interval(own[i], spread.step[:, i]),
                parts_s={name: float(values[i]) for name, values in parts.items()},
                tokens_per_step=float(tokens[i]),
                tpot_s=tpot,
                throughput_tok_s=throughput,
                speedup=interval(rate * plain[i], spread.tokens[:, i] - ratio_logs) if speculates else None,
                step_cost_ratio=interval(own[i] / plain[i], ratio_logs) if speculates else None,
                source=fit.source,
                yield_source=yields[i][2],
                octaves_outside=float(outside[i]),
            )
        )
    return found


class _Spread:
    """Draws of log(step), log(plain step) and log(tokens) around the best ones; each of shape (draws, n)."""

    def __init__(self, fit: Fit, at: Places, plain_at: Places, outside: Floats, token_sd: Floats, seed: int) -> None:
        rng = np.random.default_rng(seed)
        count, n = max(len(fit.draws), 1), len(at)
        best, best_plain = (np.log(step_s(fit.machine, places, fit.factors)) for places in (at, plain_at))
        settings = [factors for factors, _ in fit.draws] or [fit.factors]
        self.step = np.array([np.log(step_s(fit.machine, at, f)) for f in settings]) - best
        self.plain = np.array([np.log(step_s(fit.machine, plain_at, f)) for f in settings]) - best_plain
        far = _SD_PER_OCTAVE * outside
        # What the model leaves unexplained at a measured place is what it may be off by at the next one; plain and
        # speculative steps share half of it, because they share most parts.
        shared, apart = rng.normal(size=(count, n)), rng.normal(size=(count, n))
        mixed = _SHARED * shared + math.sqrt(1 - _SHARED**2) * apart
        speculates = at.k > 0
        noise = np.where(speculates, mixed * np.hypot(fit.speculative_sd, far), shared * np.hypot(fit.plain_sd, far))
        self.step = self.step + noise
        self.plain = self.plain + shared * np.hypot(fit.plain_sd, far) * speculates
        self.tokens = rng.normal(size=(count, n)) * token_sd


def _places(fit: Fit, wanted: Sequence[Wanted], draft_bytes: Callable[[str], float], *, plain: bool) -> Places:
    rows = []
    for one in wanted:
        k = 0.0 if plain else drafted_k(one.k, fit.yields.share(one.variant, one.workload))
        rows.append((one.batch, one.context, k, one.context_ranks, draft_bytes(one.variant) if k else 0.0))
    return Places.of(rows)


def _yield(fit: Fit, one: Wanted, given: Acceptance | None) -> tuple[float, float, str]:
    """Tokens a step, its relative uncertainty, and where it comes from."""
    if not one.k:
        return 1.0, 0.0, "plain decoding"
    if given is not None:
        sd = _REPORTED_SD if given.source.startswith("reported") else _GIVEN_SD
        beyond = max(0, one.k - len(given.positions)) if given.positions else 0
        return given.tokens(one.k), sd + _NEW_POSITION_SD * beyond, given.source
    measured = fit.yields.acceptance(one.variant, one.workload)
    if measured is None:
        raise PredictError(
            f"nothing says how many tokens a step of {one.variant} yields",
            evidence="no cell of it counted them and the stack reports no acceptance length",
            next_step="give --acceptance, or measure one cell of it",
        )
    counted = [key for key in fit.yields.pooled if key[0] == one.variant]
    nearest = min(abs(key[2] - one.k) for key in counted)
    return measured.tokens(one.k), _yield_sd(fit, one) + _NEW_POSITION_SD * nearest, measured.source


def _yield_sd(fit: Fit, one: Wanted) -> float:
    """How much the pooled yield moves between resamples."""
    logs = [
        math.log(found.tokens(one.k))
        for _, yields in fit.draws
        if (found := yields.acceptance(one.variant, one.workload)) is not None
    ]
    return float(np.std(logs)) if len(logs) > 1 else _GIVEN_SD
