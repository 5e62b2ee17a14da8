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
# What the same kernels lose on narrower experts, as a spread of the logarithm a halving. From 8 layers of whole experts
# to all layers of an eighth, three halvings on one H200, grouped products went from 0.93 to 0.65 of the bandwidth and
# fixed costs rose 2.2 times. Until there are more such pairs this says how far off a fit may be, not where truth lies.
_NARROWER_SD = {"expert_stream": 0.12, "launch": 0.27}


def transfer(fit: Fit, machine: Machine, *, seed: int = 0) -> Fit:
    """The fit's efficiencies on another machine.

    Layers, bytes and collectives are the new machine's. Shares of bandwidth and of peak, launch and draft factors are
    carried over with their spread, and with more of it where tensor parallelism makes experts narrower than those that
    were measured; where the old weights were dummies and the new ones are not, routing starts again
    from its priors, because dummies route uniformly. Factors of the interconnect keep their priors if only one GPU
    was measured, because nothing in the cells moved them.

    Args:
        fit: to cells of the other shape.
        machine: what is predicted.
        seed: of the draws.
    """
    rng = np.random.default_rng(seed)
    priors = fx.priors(machine)
    fresh = _ROUTING if fit.machine.dummy and not machine.dummy else ()

    halvings = _halvings(fit.machine, machine)

    def carried(factors: fx.Factors, *, drawn: bool) -> fx.Factors:
        values = {}
        if drawn and halvings:
            for name, sd in _NARROWER_SD.items():
                value = getattr(factors, name) * math.exp(rng.normal(0, sd * halvings))
                values[name] = min(max(value, priors[name].low), priors[name].high)
        for name in fresh:
            prior = priors[name]
            value = prior.centre * math.exp(rng.normal(0, prior.log_sd)) if drawn else prior.centre
            values[name] = min(max(value, prior.low), prior.high)
        return replace(factors, **values)

    return Fit(
        machine=machine,
        factors=carried(fit.factors, drawn=False),
        draws=tuple((carried(factors, drawn=True), yields) for factors, yields in fit.draws),
        yields=fit.yields,
        cells=(),
        residuals=(),
        plain_sd=math.hypot(fit.plain_sd, _TRANSFER_SD),
        speculative_sd=math.hypot(fit.speculative_sd, _TRANSFER_SD),
        source=f"{fit.source} of another shape ({fit.machine.layers} layers, {fit.machine.ranks} GPU)",
    )


def _halvings(old: Machine, new: Machine) -> float:
    """How often a GPU's part of an expert was halved; 0 where it is not smaller."""
    if not old.expert_bytes or not new.expert_bytes:
        return 0.0
    return max(0.0, math.log2(old.expert_bytes / new.expert_bytes))
