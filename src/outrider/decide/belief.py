"""What is believed about every cell of a grid, measured or not, and what a measurement would do to it.

A Gaussian over log step time and log tokens per step of all cells. Before any measurement its mean is the step-time
model at its prior, and its covariance is that of the model's own factors: whatever makes one user's step slower makes
four users' step slower, and with it the speculative one. Yields are shared by all loads of a workload, step costs by
all workloads of a load. A measurement is a linear observation, so conditioning is exact (C. E. Rasmussen, C. Williams,
*Gaussian Processes for Machine Learning*, 2006, A.2), and what a measurement would leave in doubt does not depend on
what it shows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from outrider.predict import factors as fx
from outrider.predict.model import drafted_k, step_s
from outrider.predict.nearby import coordinates
from outrider.predict.places import Places

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from outrider.campaign.resampling import Floats
    from outrider.predict.acceptance import Acceptance
    from outrider.predict.surface import Wanted
    from outrider.predict.traffic import Machine

_DRAWS = 256
# What the model's form may miss, as a share of a step: in all steps alike, and in those of one variant; both reach
# about an octave and a half. Then what one workload does to a variant's step (a look-up does not draft at every step:
# less where that was counted), and what nothing explains.
_MISFIT_SHARED, _MISFIT_KIND, _REACH_OCTAVES = 0.05, 0.08, 1.5
_WORKLOAD_LOOKUP, _WORKLOAD_COUNTED, _WORKLOAD_DRAFTER, _ALONE = 0.15, 0.05, 0.02, 0.015
# Yields: how far a reported or an unknown one may be off, how far workloads differ, and how far loads of one do.
_REPORTED_SD, _UNKNOWN_SD, _WORKLOADS_SD, _LOADS_SD = 0.20, 0.35, 0.25, 0.03
# Share of k that a variant of unknown yield is expected to get accepted.
_UNKNOWN_SHARE = 0.2
# Share of steps at which a look-up is expected to find something.
_LOOKUP_SHARE = 0.5
# Noise that cells may have: of a block (all variants of one place and repeat, between which a shared machine hardly
# changes) and of a cell in it. Both are believed to lie near their centres, within a factor of two or so, until cells
# say otherwise. Then what its prompts do to a cell's acceptance, and its counters' own.
_BLOCKS, _OWNS = (0.005, 0.02, 0.05, 0.1, 0.2, 0.4), (0.005, 0.015, 0.03, 0.06, 0.12)
_BLOCK, _OWN, _NOISE_LOG_SD = 0.05, 0.03, 0.8
_PROMPTS, _COUNTERS = 0.06, 0.01


@dataclass(frozen=True, slots=True)
class Seen:
    """One measured cell.

    Attributes:
        site: index of the cell's variant and place.
        block: what was measured under the same circumstances: the same place in the same repeat.
        tpot_s: mean seconds per output token.
        tokens_per_step: as counted; None if it was not.
    """

    site: int
    block: object
    tpot_s: float
    tokens_per_step: float | None


@dataclass(frozen=True, slots=True)
class Belief:
    """Mean and covariance of (log step time, log tokens per step) of n sites; shapes (2n,) and (2n, 2n).

    Attributes:
        sites: variant and place of each.
        mean, cov: of both vectors, one after the other.
        noise: relative standard deviation of a block and of a cell in it.
    """

    sites: tuple[Wanted, ...]
    mean: Floats
    cov: Floats
    noise: tuple[float, float] = (_BLOCK, _OWN)

    @classmethod
    def prior(
        cls,
        machine: Machine,
        sites: Sequence[Wanted],
        draft_bytes: Callable[[str], float],
        acceptance: Callable[[Wanted], Acceptance | None],
        *,
        drafted: Callable[[Wanted], float | None] = lambda _: None,
        seed: int = 0,
    ) -> Belief:
        """Before any measurement of time.

        Args:
            machine: of the stack.
            sites: whatever could be measured.
            draft_bytes: variant to the weights that one drafting pass reads; 0 for look-ups.
            acceptance: what is known of a site's yield beforehand; None for nothing.
            drafted: share of steps at which a look-up drafts under a site's workload; None if it was not counted yet.
            seed: of the draws of the factors.
        """
        n = len(sites)
        read = [draft_bytes(s.variant) if s.k else 0.0 for s in sites]
        counted = [drafted(s) for s in sites]
        shares = [1.0 if b else _LOOKUP_SHARE if c is None else c for b, c in zip(read, counted, strict=True)]
        ks = [drafted_k(site.k, share) for site, share in zip(sites, shares, strict=True)]
        at = Places.of([(s.batch, s.context, k, s.context_ranks, b) for s, k, b in zip(sites, ks, read, strict=True)])
        centre, spread = fx.centre(machine), fx.spread(machine)
        low, high = fx.bounds(machine)
        rng = np.random.default_rng(seed)
        moved = np.clip(rng.normal(centre, spread, size=(_DRAWS, centre.size)), low, high)
        logs = np.log([step_s(machine, at, fx.factors_of(row)) for row in moved])
        mean, cov = np.zeros(2 * n), np.zeros((2 * n, 2 * n))
        mean[:n] = np.log(step_s(machine, at, fx.factors_of(centre)))
        cov[:n, :n] = np.cov(logs, rowvar=False).reshape(n, n) + _misfit(sites, at, counted)
        mean[n:], cov[n:, n:] = _yields(sites, acceptance)
        return cls(tuple(sites), mean, cov)

    def given(self, seen: Sequence[Seen]) -> Belief:
        """After measurements; their noise is the likeliest one."""
        if not seen:
            return self
        rows, values, parts = _observations(seen, len(self.sites))
        gap, spread = values - rows @ self.mean, rows @ self.cov @ rows.T
        likely = {
            noise: _likelihood(gap, spread + parts.total(*noise)) + _noise_prior(*noise)
            for noise in product(_BLOCKS, _OWNS)
        }
        noise = max(likely, key=lambda pair: likely[pair])
        gain = np.linalg.solve(spread + parts.total(*noise), rows @ self.cov).T
        return replace(
            self, mean=self.mean + gain @ gap, cov=_symmetric(self.cov - gain @ rows @ self.cov), noise=noise
        )

    def after(self, cells: Sequence[tuple[int, object]]) -> tuple[Belief, Floats]:
        """What cells (site, block) would leave in doubt, and how they would move the mean.

        Returns:
            The belief with its mean as it is; and a matrix of shape (2n, m) that turns m standard normal draws into
            shifts of the mean.
        """
        seen = [Seen(site, block, 1.0, 1.0 if self.sites[site].k else None) for site, block in cells]
        rows, _, parts = _observations(seen, len(self.sites))
        inner = rows @ self.cov @ rows.T + parts.total(*self.noise)
        root = np.linalg.cholesky(inner + 1e-12 * np.eye(len(inner)))
        moves = np.linalg.solve(root, rows @ self.cov).T
        return replace(self, cov=_symmetric(self.cov - moves @ moves.T)), moves

    def gains(self, plain: Sequence[int], own: Sequence[int]) -> tuple[Floats, Floats]:
        """Mean and covariance of log speedups of sites over their plain partners; shapes (m,) and (m, m)."""
        rows = gain_rows(plain, own, len(self.sites))
        return rows @ self.mean, rows @ self.cov @ rows.T

    def grid_sd(self, repeats: int) -> float:
        """Standard error of a log speedup that was measured in so many repeats of a pair of cells."""
        return math.sqrt((2 * self.noise[1] ** 2 + _PROMPTS**2) / repeats)


def gain_rows(plain: Sequence[int], own: Sequence[int], n: int) -> Floats:
    """Rows that take the belief's vector to log speedups, shape (m, 2n): plain step - step + tokens."""
    rows = np.zeros((len(own), 2 * n))
    for row, (p, o) in zip(rows, zip(plain, own, strict=True), strict=True):
        row[p] += 1
        row[o] -= 1
        row[n + o] += 1
    return rows


def _misfit(sites: Sequence[Wanted], at: Places, counted: Sequence[float | None]) -> Floats:
    own = coordinates(at)
    near = np.exp(-((own[:, None, :] - own[None, :, :]) ** 2).sum(axis=2) / (2 * _REACH_OCTAVES**2))
    same = np.array([[a.variant == b.variant for b in sites] for a in sites])
    text = np.array([[a.workload == b.workload for b in sites] for a in sites])
    lookup = (at.k > 0) & (at.draft_bytes == 0)
    looked_up = np.array([_WORKLOAD_LOOKUP if share is None else _WORKLOAD_COUNTED for share in counted])
    workload = np.where(lookup, looked_up, _WORKLOAD_DRAFTER)
    shared = near * (_MISFIT_SHARED**2 + same * _MISFIT_KIND**2)
    result: Floats = shared + same * text * np.outer(workload, workload) + _ALONE**2 * np.eye(len(sites))
    return result


def _yields(sites: Sequence[Wanted], acceptance: Callable[[Wanted], Acceptance | None]) -> tuple[Floats, Floats]:
    known = [acceptance(site) if site.k else None for site in sites]
    tokens = [k.tokens(s.k) if k else 1 + _UNKNOWN_SHARE * s.k for s, k in zip(sites, known, strict=True)]
    mean = np.log(tokens)
    sd = np.array([0.0 if not s.k else _REPORTED_SD if k else _UNKNOWN_SD for s, k in zip(sites, known, strict=True)])
    drafts = sd > 0
    same = np.array([[a.variant == b.variant for b in sites] for a in sites]) & np.outer(drafts, drafts)
    text = np.array([[a.workload == b.workload for b in sites] for a in sites])
    cov = same * (np.outer(sd, sd) + text * _WORKLOADS_SD**2) + np.diag(drafts * _LOADS_SD**2)
    return mean, cov


@dataclass(frozen=True, slots=True)
class _Noise:
    """Covariances of observations for a block noise of 1, an own noise of 1, and what no campaign changes."""

    block: Floats
    own: Floats
    fixed: Floats

    def total(self, block: float, own: float) -> Floats:
        result: Floats = block**2 * self.block + own**2 * self.own + self.fixed
        return result


def _observations(seen: Sequence[Seen], n: int) -> tuple[Floats, Floats, _Noise]:
    """Rows of the observations, their values, and their noise: log TPOT, then log tokens where they were counted."""
    counted = [i for i, cell in enumerate(seen) if cell.tokens_per_step]
    m = len(seen)
    rows = np.zeros((m + len(counted), 2 * n))
    values = np.zeros(m + len(counted))
    block, own, fixed = (np.zeros((values.size, values.size)) for _ in range(3))
    for i, cell in enumerate(seen):
        rows[i, cell.site], rows[i, n + cell.site] = 1, -1
        values[i] = math.log(cell.tpot_s)
        for j, other in enumerate(seen):
            block[i, j] = cell.block == other.block
        own[i, i] = 1
    for row, i in enumerate(counted, start=m):
        cell = seen[i]
        rows[row, n + cell.site] = 1
        values[row] = math.log(cell.tokens_per_step or 1.0)
        # Lucky prompts raise the count and lower the time: one and the same deviation.
        fixed[row, row] = _COUNTERS**2 + _PROMPTS**2
        fixed[i, i] = _PROMPTS**2
        fixed[i, row] = fixed[row, i] = -(_PROMPTS**2)
    return rows, values, _Noise(block, own, fixed)


def _noise_prior(block: float, own: float) -> float:
    return -(math.log(block / _BLOCK) ** 2 + math.log(own / _OWN) ** 2) / (2 * _NOISE_LOG_SD**2)


def _likelihood(gap: Floats, cov: Floats) -> float:
    factor = cho_factor(cov + 1e-12 * np.eye(len(cov)))
    return float(-0.5 * gap @ cho_solve(factor, gap) - np.log(np.diag(factor[0])).sum())


def _symmetric(matrix: Floats) -> Floats:
    result: Floats = (matrix + matrix.T) / 2
    return result
