"""The machinery under `stats`: resampled rows, the levels of an interval, and statistics of many rows at once."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtr, stdtrit

from outrider.errors import CampaignError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]

RESAMPLES = 2000
BLOCK = 2_000_000
"""Most values drawn at once, so that memory stays near 50 MB whatever the sample's size."""


def finite_array(values: ArrayLike) -> Floats:
    """Values in ascending order, so that no result depends on the order of arrival; CampaignError if unusable."""
    array = np.sort(np.asarray(values, dtype=np.float64).ravel())
    if array.size == 0 or not np.isfinite(array).all():
        raise CampaignError(
            "a sample has no values, or one that is not a finite number",
            evidence=f"{array.size} values",
            next_step="leave failed requests out of the sample",
        )
    return array


def resampled_rows(n: int, seed: int) -> Iterator[NDArray[np.int64]]:
    """Index arrays of shape (block, n), `RESAMPLES` rows in all."""
    rng = np.random.default_rng(seed)
    block = max(1, BLOCK // n)
    for done in range(0, RESAMPLES, block):
        yield rng.integers(0, n, size=(min(block, RESAMPLES - done), n))


def expanded_percentiles(draws: Floats, n: int, confidence: float) -> tuple[float, float]:
    """Ends of the expanded percentile interval: level Phi(-sqrt(n/(n-1)) t) instead of alpha/2."""
    tail = float(ndtr(-math.sqrt(n / (n - 1)) * student_t(n - 1, confidence)))
    low, high = np.quantile(draws, (tail, 1 - tail))
    return float(low), float(high)


def student_t(freedom: float, confidence: float) -> float:
    """Two-sided quantile of Student's t."""
    return float(stdtrit(freedom, (1 + confidence) / 2))


def statistic_of(name: str) -> Callable[[Floats], Floats]:
    """A function from shape (rows, n) to (rows,) for `mean`, `median`, `p90`, ...; CampaignError if unknown."""
    if name == "mean":
        return lambda rows: rows.mean(axis=1)
    share = 0.5 if name == "median" else _percentile_share(name)
    return lambda rows: np.quantile(rows, share, axis=1)


def _percentile_share(name: str) -> float:
    try:
        share = float(name.removeprefix("p")) / 100 if name.startswith("p") else math.nan
    except ValueError:
        share = math.nan
    if not 0 <= share <= 1:
        raise CampaignError(f"there is no statistic {name!r}", next_step="use mean, median or p0 to p100")
    return share
