"""What measured neighbours say beyond the model: residuals near a place, shrunk towards none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from outrider.campaign.resampling import Floats
    from outrider.predict.fit import Fit
    from outrider.predict.places import Places

# Tokens of context below which differences do not matter: prompts and outputs of a "zero context" cell.
_CONTEXT_FLOOR = 2048.0
# One cell at the very place moves the prediction half-way, cells an octave away by a third.
_SHRINK, _REACH_OCTAVES = 1.0, 1.0
# Octaves that a doubling of context parallelism counts as: it changes the kernels' work, not only its amount.
_RANK_OCTAVES = 2.0
_NEIGHBOUR_OCTAVES = 1.2


def coordinates(at: Places) -> Floats:
    """Places in octaves, shape (n, 3): batch, context, context parallelism."""
    return np.stack(
        [np.log2(at.batch), np.log2(at.context + _CONTEXT_FLOOR), _RANK_OCTAVES * np.log2(at.context_ranks)], axis=1
    )


def local_correction(fit: Fit, cells: Places, at: Places) -> Floats:
    """log(rate) to add to the model's, shape (n,), from cells of the same kind: plain, or one drafter.

    Args:
        fit: with residuals.
        cells: the places of `fit.cells`.
        at: where.
    """
    if not len(cells):
        return np.zeros(len(at))
    residuals = np.array(fit.residuals)
    apart = ((coordinates(at)[:, None, :] - coordinates(cells)[None, :, :]) ** 2).sum(axis=2)
    # A look-up method's residuals say nothing about a drafter's.
    same = ((at.k[:, None] > 0) == (cells.k[None, :] > 0)) & np.isclose(at.draft_bytes[:, None], cells.draft_bytes)
    weights = np.exp(-apart / (2 * _REACH_OCTAVES**2)) * same
    result: Floats = weights @ residuals / (weights.sum(axis=1) + _SHRINK)
    return result


def cell_noise(fit: Fit, cells: Places, *, speculates: bool, ceiling: float) -> float:
    """Relative noise of one cell of a kind: how much residuals of nearest neighbours differ.

    Half the mean squared difference at the shortest distance, so that what the model misses over a whole region does
    not count (the nugget of a variogram; N. Cressie, *Statistics for Spatial Data*, 1993, 2.4). Never below 1 %, and
    `ceiling` where fewer than four cells have a neighbour.
    """
    chosen = np.flatnonzero((cells.k > 0) == speculates)
    own, residuals = coordinates(cells)[chosen], np.array(fit.residuals)[chosen] if chosen.size else np.zeros(0)
    apart = ((own[:, None, :] - own[None, :, :]) ** 2).sum(axis=2)
    np.fill_diagonal(apart, np.inf)
    nearest = apart.argmin(axis=1) if chosen.size > 1 else np.zeros(0, dtype=int)
    close = [(i, j) for i, j in enumerate(nearest) if apart[i, j] <= _NEIGHBOUR_OCTAVES**2]
    if len(close) < 4:
        return ceiling
    differences = np.array([residuals[i] - residuals[j] for i, j in close])
    return min(ceiling, max(0.01, float(np.sqrt(np.mean(differences**2) / 2))))


def octaves_outside(cells: Places, at: Places) -> Floats:
    """How far places lie outside the box of the cells, in octaves of tokens, context and context parallelism."""
    if not len(cells):
        return np.zeros(len(at))

    def axes(places: Places) -> Floats:
        own = coordinates(places)
        own[:, 0] = np.log2(places.tokens)
        return own

    box, wanted = axes(cells), axes(at)
    below = np.maximum(box.min(axis=0) - wanted, 0)
    above = np.maximum(wanted - box.max(axis=0), 0)
    result: Floats = (below + above).sum(axis=1)
    return result
