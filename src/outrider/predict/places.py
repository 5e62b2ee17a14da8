"""Where step times are wanted, as columns."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from outrider.predict.experts import REVISIT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from outrider.campaign.resampling import Floats


@dataclass(frozen=True, slots=True)
class Places:
    """Where step times are wanted; every field has the shape (n,).

    Attributes:
        batch: sequences B that decode together.
        context: tokens L in each one's cache.
        k: speculative tokens that a sequence verifies in the mean step (`drafted_k`); 0 is plain decoding.
        context_ranks: decode context parallelism.
        draft_bytes: weights that one drafting pass reads on one GPU; 0 where k is 0 or proposals are looked up.
        bound: experts that a layer may read in a step (an expert budget); infinite without one.
        revisit: cost of a further block of an expert's rows, of the first one's; see `experts.expert_bytes_read`.
    """

    batch: Floats
    context: Floats
    k: Floats
    context_ranks: Floats
    draft_bytes: Floats
    bound: Floats | float = math.inf
    revisit: float = REVISIT

    @classmethod
    def of(cls, rows: Sequence[tuple[float, float, float, float, float]]) -> Places:
        """From rows of (batch, context, k, context_ranks, draft_bytes)."""
        table = np.asarray(rows, dtype=float).reshape(-1, 5)
        return cls(*table.T)

    @property
    def tokens(self) -> Floats:
        """T = B(k+1): tokens that pass through the target in one step."""
        return self.batch * (self.k + 1)

    def __len__(self) -> int:
        return int(self.batch.size)
