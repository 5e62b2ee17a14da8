"""A model fitted to one shape, carried over to another: more layers, more GPUs, real weights."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from outrider.predict import factors as fx
from outrider.predict.fit import Fit

if TYPE_CHECKING:
    from outrider.predict.traffic import Machine

# What a change of depth, node and routing adds to the model's own error, as a share: stated, not measured.
_TRANSFER_SD = 0.10
_ROUTING = ("overlap", "skew")


def transfer(fit: Fit, machine: Machine, *, seed: int = 0) -> Fit:
    """The fit's efficiencies on another machine.

    Layers, bytes and collectives are the new machine's. Shares of bandwidth and of peak, launch and draft factors are
    carried over with their spread; where the old weights were dummies and the new ones are not, routing starts again
    from its priors, because dummies route uniformly. Factors of the interconnect keep their priors if only one GPU
    was measured, because nothing in the cells moved them.

    Args:
        fit: to cells of the other shape.
        machine: what is predicted.
        seed: of the routing draws.
    """
    rng = np.random.default_rng(seed)
    priors = fx.priors(machine)
    fresh = _ROUTING if fit.machine.dummy and not machine.dummy else ()

    def routed(factors: fx.Factors, *, drawn: bool) -> fx.Factors:
        values = {}
        for name in fresh:
            prior = priors[name]
            value = prior.centre * math.exp(rng.normal(0, prior.log_sd)) if drawn else prior.centre
            values[name] = min(max(value, prior.low), prior.high)
        return replace(factors, **values)

    return Fit(
        machine=machine,
        factors=routed(fit.factors, drawn=False),
        draws=tuple((routed(factors, drawn=True), yields) for factors, yields in fit.draws),
        yields=fit.yields,
        cells=(),
        residuals=(),
        plain_sd=math.hypot(fit.plain_sd, _TRANSFER_SD),
        speculative_sd=math.hypot(fit.speculative_sd, _TRANSFER_SD),
        source=f"{fit.source} of another shape ({fit.machine.layers} layers, {fit.machine.ranks} GPU)",
    )
