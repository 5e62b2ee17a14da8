"""Fits the model's factors to whatever cells exist, and says how sure it is.

Maximum a posteriori: log residuals of cells and of factors against their priors, by bounded least squares with a
soft loss. Uncertainty by a randomised bootstrap: each draw resamples the cells *and* draws the prior centres, so
that directions in which cells say nothing keep the prior's width; without cells the draws are the prior.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import least_squares

from outrider.predict import factors as fx
from outrider.predict.model import drafted_k, step_s
from outrider.predict.places import Places
from outrider.predict.yields import Yields, pooled_yields

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from outrider.campaign.resampling import Floats
    from outrider.predict.observations import Observation
    from outrider.predict.shares import Shares
    from outrider.predict.traffic import Machine

DRAWS = 60
# Relative noise of one cell: repeats of a plain cell agree within 2-4 %; a speculative one also carries the drift of
# acceptance within its window.
_PLAIN_SD, _SPECULATIVE_SD = 0.03, 0.06
# How far the model itself may be off, as a share, where cells of that kind say nothing: with nothing at hand, with a
# profile of plain decoding, and for speculation with plain cells only.
_UNFITTED_SD, _PROFILED_SD, _UNSEEN_KIND_SD = 0.15, 0.10, 0.08
_LEAST_SD = 0.02


@dataclass(frozen=True, slots=True)
class Fit:
    """A fitted model.

    Attributes:
        machine: of the stack.
        factors: the best setting.
        draws: other settings, each as likely, and its yields.
        yields: tokens a step by variant, workload and k.
        cells: what it was fitted to.
        residuals: log(measured / predicted) rate of each cell.
        plain_sd, speculative_sd: how far cells of either kind lie off.
        source: `prior`, `profile`, `baseline`, `step cost` or `cells`, the best that was at hand.
    """

    machine: Machine
    factors: fx.Factors
    draws: tuple[tuple[fx.Factors, Yields], ...]
    yields: Yields
    cells: tuple[Observation, ...]
    residuals: tuple[float, ...]
    plain_sd: float
    speculative_sd: float
    source: str


def fit(
    machine: Machine,
    cells: Sequence[Observation],
    draft_bytes: Callable[[str], float],
    *,
    shares: Shares | None = None,
    draws: int = DRAWS,
    seed: int = 0,
) -> Fit:
    """Fit the factors.

    Args:
        machine: of the stack.
        cells: measured; cells under a schedule are left out. May be empty.
        draft_bytes: variant to the weights that one drafting pass reads.
        shares: time shares of a plain decode step.
        draws: settings drawn for intervals.
        seed: of the draws.
    """
    used = [cell for cell in cells if not cell.dynamic]
    rng = np.random.default_rng(seed)
    centre, spread = fx.centre(machine), fx.spread(machine)
    problem = _Problem(machine, used, draft_bytes, shares)
    best, yields = problem.solve(centre, np.arange(len(used)))
    drawn: list[tuple[fx.Factors, Yields]] = []
    low, high = fx.bounds(machine)
    for _ in range(draws):
        moved = np.clip(rng.normal(centre, spread), low + 1e-6, high - 1e-6)
        rows = rng.integers(0, len(used), len(used)) if used else np.arange(0)
        logs, own = problem.solve(moved, rows, start=best)
        drawn.append((fx.factors_of(logs), own))
    residuals = problem.residuals(best, yields)
    return Fit(
        machine=machine,
        factors=fx.factors_of(best),
        draws=tuple(drawn),
        yields=yields,
        cells=tuple(used),
        residuals=tuple(residuals.tolist()),
        plain_sd=_scatter(residuals, [not c.k for c in used], shares),
        speculative_sd=_scatter(residuals, [c.k > 0 for c in used], shares),
        source=_source(used, shares),
    )


def places_of(cells: Sequence[Observation], draft_bytes: Callable[[str], float]) -> Places:
    """The cells' places; what a sequence verifies in the mean step counts, not what it could."""
    return Places.of(
        [
            (c.batch, c.context, drafted_k(c.k, c.drafted), c.context_ranks, draft_bytes(c.variant) if c.k else 0.0)
            for c in cells
        ]
    )


class _Problem:
    """Residuals of one set of cells."""

    def __init__(
        self,
        machine: Machine,
        cells: Sequence[Observation],
        draft_bytes: Callable[[str], float],
        shares: Shares | None,
    ) -> None:
        self._machine = machine
        self._cells = cells
        self._places = places_of(cells, draft_bytes)
        self._log_rates = np.log([cell.rate for cell in cells])
        self._sd = np.array([_SPECULATIVE_SD if cell.k else _PLAIN_SD for cell in cells])
        self._shares = shares

    def residuals(self, logs: Floats, yields: Yields) -> Floats:
        """log(measured / predicted) rate of every cell."""
        if not self._cells:
            return np.zeros(0)
        step = step_s(self._machine, self._places, fx.factors_of(logs))
        tokens = np.array([yields.of_cell(cell) for cell in self._cells])
        result: Floats = self._log_rates - np.log(tokens / step)
        return result

    def solve(self, centre: Floats, rows: np.ndarray, start: Floats | None = None) -> tuple[Floats, Yields]:
        """Best logarithms of the factors for a resample of the cells, with its yields."""
        spread = fx.spread(self._machine)
        low, high = fx.bounds(self._machine)
        chosen = [self._cells[i] for i in rows]
        yields = pooled_yields(chosen, fallback=self._cells)

        def residuals(logs: Floats) -> Floats:
            parts = [(logs - centre) / spread]
            if len(rows):
                parts.append((self.residuals(logs, yields) / self._sd)[rows])
            if self._shares is not None:
                parts.append(self._shares.residuals(self._machine, fx.factors_of(logs)))
            return np.concatenate(parts)

        if not len(rows) and self._shares is None:
            return centre, yields
        first = np.clip(centre if start is None else start, low + 1e-6, high - 1e-6)
        found = least_squares(residuals, first, bounds=(low, high), loss="soft_l1", f_scale=2.0, max_nfev=40)
        return found.x, yields


def _scatter(residuals: Floats, own: Sequence[bool], shares: Shares | None) -> float:
    """Robust standard deviation of the residuals of one kind, never below what a repeat shows."""
    if not residuals.size:
        return _PROFILED_SD if shares is not None else _UNFITTED_SD
    chosen = residuals[np.array(own)]
    if chosen.size < 3:
        return _UNSEEN_KIND_SD
    return max(_LEAST_SD, float(1.4826 * np.median(np.abs(chosen))))


def _source(cells: Sequence[Observation], shares: Shares | None) -> str:
    if any(cell.k for cell in cells):
        return "cells"
    if cells:
        return "baseline cells"
    return "decode profile" if shares is not None else "prior"
