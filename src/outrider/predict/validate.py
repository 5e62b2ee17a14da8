"""How wrong the model is on cells that it was not fitted to, beside two predictors that know no physics."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from outrider.predict.errors import PredictError
from outrider.predict.fit import places_of
from outrider.predict.nearby import coordinates
from outrider.predict.surface import Wanted, predict

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from outrider.predict.acceptance import Acceptance
    from outrider.predict.fit import Fit
    from outrider.predict.observations import Observation
    from outrider.predict.session import Session
    from outrider.predict.surface import Prediction

# Speedups this near to 1 are ties within the noise of a cell; choices among them are reported apart.
NEAR_PARITY = 0.03
_WORKLOAD_OCTAVES = 2.0


@dataclass(frozen=True, slots=True)
class Pair:
    """Plain and speculative decoding measured at the same place."""

    plain: Observation
    speculative: Observation

    @property
    def speedup(self) -> float:
        """Plain TPOT / speculative TPOT."""
        return self.speculative.rate / self.plain.rate


@dataclass(frozen=True, slots=True)
class Score:
    """Errors over test pairs.

    Attributes:
        mape: mean of |predicted / measured speedup - 1|.
        choice_accuracy: share of pairs on whose right side of 1 the prediction lies; a tie is "off".
        choice_accuracy_beyond: the same over pairs more than `NEAR_PARITY` away from parity; None without any.
        regret: mean share of throughput lost by the predicted choice against the better one.
        n: pairs.
        n_beyond: pairs away from parity.
    """

    mape: float
    choice_accuracy: float
    choice_accuracy_beyond: float | None
    regret: float
    n: int
    n_beyond: int

    @classmethod
    def of(cls, predicted: Sequence[float], measured: Sequence[float]) -> Score:
        """Score predicted against measured speedups."""
        guess, truth = np.array(predicted), np.array(measured)
        right = (guess > 1) == (truth > 1)
        beyond = np.abs(truth - 1) > NEAR_PARITY
        got, best = np.where(guess > 1, truth, 1.0), np.maximum(truth, 1.0)
        return cls(
            mape=float(np.mean(np.abs(guess / truth - 1))),
            choice_accuracy=float(right.mean()),
            choice_accuracy_beyond=float(right[beyond].mean()) if beyond.any() else None,
            regret=float(np.mean(1 - got / best)),
            n=int(truth.size),
            n_beyond=int(beyond.sum()),
        )

    def as_dict(self) -> dict[str, float | int | None]:
        """JSON form."""
        return {
            "mape": self.mape,
            "choice_accuracy": self.choice_accuracy,
            "choice_accuracy_beyond_3pct": self.choice_accuracy_beyond,
            "regret": self.regret,
            "n": self.n,
            "n_beyond_3pct": self.n_beyond,
        }


@dataclass(frozen=True, slots=True)
class Validation:
    """The model's score, the naive ones', and every test pair.

    Attributes:
        model, nearest_cell, constant_ratio: scores; the naive ones are None if nothing speculative was fitted.
        coverage: share of measured speedups inside their 95 % interval.
        step_mape: the same error of step times, where test cells counted their tokens.
        pairs, predictions: test pairs with what was predicted of them.
        plain_predictions: of each pair's plain cell.
    """

    model: Score
    nearest_cell: Score | None
    constant_ratio: Score | None
    coverage: float
    step_mape: float | None
    pairs: tuple[Pair, ...]
    predictions: tuple[Prediction, ...]
    plain_predictions: tuple[Prediction, ...]


def pairs_of(cells: Sequence[Observation]) -> list[Pair]:
    """Speculative cells with a plain one at the same place; cells under a schedule are left out."""
    repeats: defaultdict[tuple[str, int, float, int], list[Observation]] = defaultdict(list)
    for cell in cells:
        if not cell.k and not cell.dynamic:
            repeats[cell.place].append(cell)
    # Repeats of plain decoding ask other prompts: their mean stands for the place.
    plain = {
        place: replace(own[0], rate=math.exp(math.fsum(math.log(c.rate) for c in own) / len(own)))
        for place, own in repeats.items()
    }
    return [Pair(plain[cell.place], cell) for cell in cells if cell.k and not cell.dynamic and cell.place in plain]


def validate(
    fit: Fit,
    test: Sequence[Observation],
    draft_bytes: Callable[[str], float],
    *,
    acceptance: Callable[[Wanted], Acceptance | None] = lambda _: None,
) -> Validation:
    """Score a fit on other cells. Of a test cell only its coordinates are used: its acceptance is not known beforehand.

    Raises:
        PredictError: no test cell can be paired.
    """
    # A plain partner may stand among the fitted cells: the step-cost form holds out speculative cells only.
    known = {id(cell) for cell in test}
    pairs = [pair for pair in pairs_of([*fit.cells, *test]) if id(pair.speculative) in known]
    if not pairs:
        raise PredictError(
            "no test cell has a plain and a speculative measurement at the same place",
            evidence=f"{len(test)} test cells, {len(fit.cells)} fitted",
            next_step="widen --holdout, or give --test a file with both",
        )
    predictions = predict(fit, [_wanted(p.speculative) for p in pairs], draft_bytes, acceptance=acceptance)
    plain = predict(fit, [_wanted(p.plain) for p in pairs], draft_bytes)
    truth = [pair.speedup for pair in pairs]
    guesses = [p.speedup for p in predictions]
    inside = [i is not None and not i.excludes(t) for i, t in zip(guesses, truth, strict=True)]
    steps = [
        abs(p.step_s.mid / pair.speculative.step_s - 1)
        for p, pair in zip(predictions, pairs, strict=True)
        if pair.speculative.step_s
    ]
    fitted = pairs_of(fit.cells)
    return Validation(
        model=Score.of([i.mid for i in guesses if i is not None], truth),
        nearest_cell=Score.of(_nearest(fitted, pairs), truth) if fitted else None,
        constant_ratio=Score.of(_constant(fit, fitted, pairs), truth) if fitted else None,
        coverage=float(np.mean(inside)),
        step_mape=float(np.mean(steps)) if steps else None,
        pairs=tuple(pairs),
        predictions=tuple(predictions),
        plain_predictions=tuple(plain),
    )


def cross_validate(
    cells: Sequence[Observation], refit: Callable[[Sequence[Observation]], Session], *, folds: int = 5
) -> list[tuple[Pair, Prediction]]:
    """Every pair with what a model says that was fitted without it.

    Args:
        cells: all of them.
        refit: cells to a fitted session.
        folds: parts that are left out in turn; places are dealt out in order, so neighbours fall into different ones.
    """
    pairs = pairs_of(cells)
    places = sorted({pair.plain.place for pair in pairs})
    found: list[tuple[Pair, Prediction]] = []
    for fold in range(min(folds, len(places))):
        out = set(places[fold::folds])
        kept = [cell for cell in cells if cell.place not in out]
        own = [pair for pair in pairs if pair.plain.place in out]
        if not any(cell.k for cell in kept):
            continue
        session = refit(kept)
        known = [pair for pair in own if session.fit.yields.acceptance(pair.speculative.variant) is not None]
        wanted = [_wanted(pair.speculative) for pair in known]
        found += zip(
            known, predict(session.fit, wanted, session.draft_bytes, acceptance=session.acceptance), strict=True
        )
    return found


def _wanted(cell: Observation) -> Wanted:
    return Wanted(cell.variant, cell.k, cell.batch, cell.context, cell.context_ranks, cell.workload)


def _nearest(fitted: Sequence[Pair], pairs: Sequence[Pair]) -> list[float]:
    """Speedup of the nearest measured pair, in octaves of batch and context; another k or workload is farther."""
    known = coordinates(places_of([p.speculative for p in fitted], lambda _: 0.0))
    wanted = coordinates(places_of([p.speculative for p in pairs], lambda _: 0.0))
    found = []
    for pair, here in zip(pairs, wanted, strict=True):
        other = np.array(
            [
                (math.log2((f.speculative.k + 1) / (pair.speculative.k + 1)) * _WORKLOAD_OCTAVES) ** 2
                + (_WORKLOAD_OCTAVES**2 if f.speculative.workload != pair.speculative.workload else 0.0)
                for f in fitted
            ]
        )
        found.append(fitted[int(np.argmin(((known - here) ** 2).sum(axis=1) + other))].speedup)
    return found


def _constant(fit: Fit, fitted: Sequence[Pair], pairs: Sequence[Pair]) -> list[float]:
    """Pooled tokens per step over one step-cost ratio for all places."""

    def tokens(cell: Observation) -> float:
        own = fit.yields.acceptance(cell.variant, cell.workload)
        return own.tokens(cell.k) if own else cell.k + 1.0

    ratio = math.exp(math.fsum(math.log(tokens(p.speculative) / p.speedup) for p in fitted) / len(fitted))
    return [tokens(p.speculative) / ratio for p in pairs]


def regions(validation: Validation) -> list[dict[str, Any]]:
    """Residuals of speedups by region: context band x batch band, worst first."""
    grouped: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for pair, prediction in zip(validation.pairs, validation.predictions, strict=True):
        cell = pair.speculative
        context = "short (< 8k)" if cell.context < 8192 else "mid (8k-48k)" if cell.context < 49152 else "long (48k+)"
        batch = "1-2" if cell.batch <= 2 else "3-15" if cell.batch < 16 else "16+"
        if prediction.speedup is not None:
            grouped[context, batch].append(math.log(pair.speedup / prediction.speedup.mid))
    rows = [
        {
            "context": context,
            "batch": batch,
            "n": len(logs),
            "bias": math.exp(math.fsum(logs) / len(logs)) - 1,
            "mean_error": math.fsum(abs(math.exp(v) - 1) for v in logs) / len(logs),
        }
        for (context, batch), logs in grouped.items()
    ]
    return sorted(rows, key=lambda row: -float(str(row["mean_error"])))
