"""What an expert budget would save: step time against B, from the same model as every other prediction."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from outrider.campaign.stats import Interval
from outrider.predict.errors import PredictError
from outrider.predict.experts import REVISIT_RANGE, distinct_experts
from outrider.predict.model import step_parts, step_s
from outrider.predict.places import Places

if TYPE_CHECKING:
    from collections.abc import Sequence

    from outrider.campaign.resampling import Floats
    from outrider.predict.fit import Fit


@dataclass(frozen=True, slots=True)
class BudgetStep:
    """A step under a budget.

    Attributes:
        batch: sequences that decode together.
        k: speculative tokens that each verifies.
        context: tokens in each one's cache.
        experts: B; None without a budget.
        union: distinct experts a layer that the tokens would touch without one, as fitted.
        step_s: seconds of the step.
        ratio: of the step without a budget; 1 where B is not reached. Lossy: what it does to answers is not in it.
        experts_share: of the step, that goes into routed experts.
    """

    batch: int
    k: int
    context: float
    experts: int | None
    union: float
    step_s: Interval
    ratio: Interval
    experts_share: float


def budget_steps(
    fit: Fit,
    budgets: Sequence[int],
    *,
    batches: Sequence[int],
    k: int,
    context: float,
    draft_bytes: float = 0.0,
    confidence: float = 0.95,
) -> list[BudgetStep]:
    """Step times by batch and B, each batch first without a budget.

    The budget's own work on the GPU is not in them: it is measured by a budget of all experts.

    Args:
        fit: the model.
        budgets: values of B.
        batches: values of the batch.
        k: speculative tokens; 0 is plain decoding.
        context: tokens in the cache.
        draft_bytes: weights that one drafting pass reads.
        confidence: of the intervals, which hold the uncertainty of the factors.

    Raises:
        PredictError: the target has no routed experts, or B is below top_k.
    """
    machine = fit.machine
    if not machine.experts:
        raise PredictError("the target has no routed experts", next_step="an expert budget needs a mixture of experts")
    if low := [budget for budget in budgets if budget < machine.per_token]:
        raise PredictError(
            f"a budget of {low[0]} experts is below top_k",
            evidence=f"each token is routed to {machine.per_token}",
            next_step=f"{machine.per_token} to {machine.experts}",
        )
    rows = [(batch, budget) for batch in batches for budget in (None, *sorted(budgets, reverse=True))]
    free = Places.of([(batch, context, k, machine.context_ranks, draft_bytes) for batch, _ in rows])
    bound = replace(free, bound=np.array([np.inf if budget is None else float(budget) for _, budget in rows]))
    mid, whole = step_s(machine, bound, fit.factors), step_s(machine, free, fit.factors)
    parts = step_parts(machine, bound, fit.factors)
    # Each draw its own cost of a block, spread evenly over what the measured cells leave possible.
    blocks = np.linspace(*REVISIT_RANGE, num=len(fit.draws))
    drawn = np.array(
        [
            step_s(machine, replace(bound, revisit=float(cost)), factors)
            for cost, (factors, _) in zip(blocks, fit.draws, strict=True)
        ]
    )
    drawn_whole = np.array([step_s(machine, free, factors) for factors, _ in fit.draws])
    union = distinct_experts(free.tokens, machine.experts, machine.per_token, fit.factors.overlap, fit.factors.skew)
    return [
        BudgetStep(
            batch=batch,
            k=k,
            context=context,
            experts=budget,
            union=float(union[i]),
            step_s=_interval(float(mid[i]), drawn[:, i], confidence, len(fit.cells)),
            ratio=_interval(float(mid[i] / whole[i]), drawn[:, i] / drawn_whole[:, i], confidence, len(fit.cells)),
            experts_share=float(parts["experts"][i] / mid[i]),
        )
        for i, (batch, budget) in enumerate(rows)
    ]


def _interval(mid: float, drawn: Floats, confidence: float, cells: int) -> Interval:
    tail = (1 - confidence) / 2
    low, high = np.quantile(drawn, (tail, 1 - tail))
    return Interval(min(float(low), mid), mid, max(float(high), mid), cells)
