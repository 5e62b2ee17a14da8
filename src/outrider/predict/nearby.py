"""What measured neighbours say beyond the model: residuals near a place, shrunk towards none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from outrider.campaign.resampling import Floats
    from outrider.predict.fit import Fit
    from outrider.predict.model import Places

# Tokens of context below which differences do not matter: prompts and outputs of a "zero context" cell.
_CONTEXT_FLOOR = 2048.0
# One cell at the very place moves the prediction half-way, cells an octave away by a third.
_SHRINK, _REACH_OCTAVES = 1.0, 1.0
# Octaves that a doubling of context parallelism counts as: it changes the kernels' work, not only its amount.
_RANK_OCTAVES = 2.0


def coordinates(at: Places) -> Floats:
    """Places in octaves, shape (n, 3): batch, context, context parallelism."""
    return np.stack(
        [np.log2(at.batch), np.log2(at.context + _CONTEXT_FLOOR), _RANK_OCTAVES * np.log2(at.context_ranks)], axis=1
    )


def local_correction(fit: Fit, cells: Places, at: Places) -> Floats:
    """log(rate) to add to the model's, shape (n,), from cells of the same kind (plain, or speculating).

    Args:
        fit: with residuals.
        cells: the places of `fit.cells`.
        at: where.
    """
    if not len(cells):
        return np.zeros(len(at))
    residuals = np.array(fit.residuals)
    apart = ((coordinates(at)[:, None, :] - coordinates(cells)[None, :, :]) ** 2).sum(axis=2)
    weights = np.exp(-apart / (2 * _REACH_OCTAVES**2)) * ((at.k[:, None] > 0) == (cells.k[None, :] > 0))
    result: Floats = weights @ residuals / (weights.sum(axis=1) + _SHRINK)
    return result


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
