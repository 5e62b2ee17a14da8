"""Concurrency bands: what a live load and a recorded cell have in common.

A band holds the concurrencies above half of its upper bound: 1, 2, 3-4, 5-8, 9-16, ... Time per output token changes
little within one, and a campaign over powers of two fills each.
"""

from __future__ import annotations

_LARGEST = 512
BOUNDS: tuple[int, ...] = tuple(1 << power for power in range(_LARGEST.bit_length()))  # upper bounds: 1, 2, 4, ..., 512


def band_name(upper: int) -> str:
    """Label of the band with an upper bound: `1`, `2`, `3-4`, `5-8`, ..."""
    return str(upper) if upper <= 2 else f"{upper // 2 + 1}-{upper}"


def band_of(concurrency: float) -> str:
    """Label of the band that a concurrency lies in; what is beyond the last bound is the last band's."""
    return band_name(next((upper for upper in BOUNDS if concurrency <= upper), BOUNDS[-1]))


def band_expression(series: str) -> str:
    """PromQL: the series, with the label `band` that its value gives it.

    A mean over a minute is rarely whole, so that bands meet at half way: 2.4 users are the band of 2, 2.6 that of 3-4.
    """
    parts: list[str] = []
    for position, upper in enumerate(BOUNDS):
        low = BOUNDS[position - 1] + 0.5 if position else 0
        last = position == len(BOUNDS) - 1
        inside = f"{series} > {low:g}" + ("" if last else f" <= {upper + 0.5:g}")
        parts.append(f'label_replace({inside}, "band", "{band_name(upper)}", "", "")')
    return "\nor ".join(parts)
