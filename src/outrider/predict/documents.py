"""Predictions and validations as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from outrider.predict import factors as fx
from outrider.predict.validate import regions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from outrider.campaign.stats import Interval
    from outrider.predict.fit import Fit
    from outrider.predict.surface import Prediction
    from outrider.predict.validate import Validation
    from outrider.stack import Stack


def ends(interval: Interval | None) -> dict[str, float] | None:
    """low, mid, high."""
    return None if interval is None else {"low": interval.low, "mid": interval.mid, "high": interval.high}


def prediction_json(one: Prediction) -> dict[str, Any]:
    """One place; times in seconds, throughput in tokens per second."""
    return {
        "variant": one.at.variant,
        "k": one.at.k,
        "concurrency": one.at.batch,
        "context_tokens": one.at.context,
        "dcp": one.at.context_ranks,
        "workload": one.at.workload,
        "step_s": ends(one.step_s),
        "parts_s": one.parts_s,
        "tokens_per_step": one.tokens_per_step,
        "tpot_s": ends(one.tpot_s),
        "throughput_tok_s": ends(one.throughput_tok_s),
        "speedup": ends(one.speedup),
        "break_even_tokens_per_step": ends(one.step_cost_ratio),
        "source": one.source,
        "yield_source": one.yield_source,
        "octaves_outside": one.octaves_outside,
        "extrapolated": one.extrapolated,
    }


def fit_json(fit: Fit) -> dict[str, Any]:
    """Factors with prior and 95 % range, scatter, and what was fitted."""
    own = fx.priors(fit.machine)
    drawn = {name: sorted(getattr(f, name) for f, _ in fit.draws) for name in own}
    return {
        "source": fit.source,
        "cells": len(fit.cells),
        "plain_sd": fit.plain_sd,
        "speculative_sd": fit.speculative_sd,
        "factors": {
            name: {
                "value": getattr(fit.factors, name),
                "low": drawn[name][int(0.025 * len(drawn[name]))] if drawn[name] else None,
                "high": drawn[name][min(int(0.975 * len(drawn[name])), len(drawn[name]) - 1)] if drawn[name] else None,
                "prior": prior.centre,
                "at_bound": not prior.low * 1.001 < getattr(fit.factors, name) < prior.high * 0.999,
                "why": prior.why,
            }
            for name, prior in own.items()
        },
    }


def run_json(stack: Stack, fit: Fit, predictions: Sequence[Prediction]) -> dict[str, Any]:
    """`outrider predict run --json`."""
    return {
        "schema": 1,
        "stack": stack.name,
        "stack_digest": stack.digest(),
        "fit": fit_json(fit),
        "predictions": [prediction_json(one) for one in predictions],
    }


def validation_json(stack: Stack, fit: Fit, found: Validation) -> dict[str, Any]:
    """`outrider predict validate --json`: the model's figures at the top, the naive ones' below `naive`."""
    naive = {"nearest_cell": found.nearest_cell, "constant_ratio": found.constant_ratio}
    return {
        "schema": 1,
        "stack": stack.name,
        **found.model.as_dict(),
        "coverage": found.coverage,
        "step_mape": found.step_mape,
        "naive": {name: score.as_dict() if score else None for name, score in naive.items()},
        "regions": regions(found),
        "fit": fit_json(fit),
        "cells": [
            {
                "where": pair.speculative.where,
                "measured_speedup": pair.speedup,
                "measured_tpot_s": 1 / pair.speculative.rate,
                "measured_plain_tpot_s": 1 / pair.plain.rate,
                "predicted_plain_tpot_s": ends(plain.tpot_s),
                "predicted": prediction_json(one),
            }
            for pair, one, plain in zip(found.pairs, found.predictions, found.plain_predictions, strict=True)
        ],
    }
