"""Which cells say most about the decision, for what they cost."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtri
from scipy.stats import qmc

from outrider.decide.belief import gain_rows

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from outrider.campaign.resampling import Floats
    from outrider.decide.belief import Belief

# Cells of one action: (site, block) pairs.
Action = tuple[tuple[int, object], ...]
_LOG2_DRAWS = 10


@dataclass(frozen=True, slots=True)
class Contest:
    """One place of the decision: a plain site and its rivals.

    Attributes:
        place: its name.
        plain: index of the plain site.
        rivals: indices of the others.
    """

    place: Hashable
    plain: int
    rivals: tuple[int, ...]


def contests_of(belief: Belief) -> list[Contest]:
    """Places with a plain site and at least one rival."""
    groups: defaultdict[tuple[object, ...], list[int]] = defaultdict(list)
    for index, site in enumerate(belief.sites):
        groups[site.workload, site.batch, site.context, site.context_ranks].append(index)
    found = []
    for place, members in groups.items():
        plain = [i for i in members if not belief.sites[i].k]
        rivals = tuple(i for i in members if belief.sites[i].k)
        if plain and rivals:
            found.append(Contest(place, plain[0], rivals))
    return found


class Doubt:
    """What deciding now is expected to lose, and what each action would save of it; deterministic."""

    def __init__(self, belief: Belief) -> None:
        self._belief = belief
        self._contests = contests_of(belief)
        pairs = [(c.plain, rival) for c in self._contests for rival in c.rivals]
        self._rows = gain_rows([p for p, _ in pairs], [r for _, r in pairs], len(belief.sites))
        self._starts = np.cumsum([0, *(len(c.rivals) for c in self._contests)])
        self._means = self._rows @ belief.mean

    def expected_losses(self) -> dict[Hashable, float]:
        """By place: log speed that the choice which looks best now is expected to lose against knowing the truth."""
        spread = self._rows @ self._belief.cov @ self._rows.T
        root = np.linalg.cholesky(spread + 1e-12 * np.eye(len(spread)))
        losses = self._gain(np.asarray(root, dtype=np.float64))
        return {contest.place: float(loss) for contest, loss in zip(self._contests, losses, strict=True)}

    def saved(self, action: Action) -> float:
        """Log speed, summed over places, that deciding after these cells is expected to gain over deciding now.

        The knowledge gradient for correlated beliefs (P. Frazier, W. Powell, S. Dayanik, INFORMS J. Computing 21
        (2009) 599-613), by draws instead of its closed form, because an action may hold several cells.
        """
        _, moves = self._belief.after(action)
        return float(self._gain(self._rows @ moves).sum())

    def _gain(self, moves: Floats) -> Floats:
        """By contest: E[max of moved means and 0] - max of means and 0."""
        shifted = self._means + _normals(moves.shape[1]) @ moves.T
        found = []
        for first, last in zip(self._starts, self._starts[1:], strict=False):
            best = np.maximum(shifted[:, first:last].max(axis=1), 0.0).mean()
            found.append(max(0.0, best - max(0.0, float(self._means[first:last].max()))))
        return np.array(found)


@cache
def _normals(dimensions: int) -> Floats:
    """Standard normal points that fill space evenly (Sobol), so that two actions differ by more than their draws."""
    points = qmc.Sobol(dimensions, scramble=True, seed=0).random_base2(_LOG2_DRAWS)
    result: Floats = ndtri(points)
    return result


def best_actions(
    belief: Belief, actions: Sequence[Action], *, most_cells: int, rounds: int = 1, least: float
) -> list[Action]:
    """Actions to take now, the most saving a cell first.

    Args:
        belief: given all that was measured.
        actions: what could be done; each names cells that were not measured.
        most_cells: cells that may be taken in all.
        rounds: how many actions to take before the results of the first are known.
        least: saving in all (log speed) under which nothing more is worth a cell.
    """
    chosen: list[Action] = []
    taken: set[tuple[int, object]] = set()
    for _ in range(rounds):
        doubt = Doubt(belief)
        open_ = [tuple(cell for cell in action if cell not in taken) for action in actions]
        values = {a: doubt.saved(a) for a in dict.fromkeys(open_) if a and len(a) <= most_cells - len(taken)}
        if not values:
            break
        best = max(values, key=lambda action: (values[action] / len(action), -len(action)))
        if values[best] < least:
            break
        chosen.append(best)
        taken |= set(best)
        belief, _ = belief.after(best)
    return chosen
