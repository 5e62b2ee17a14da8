"""The decision as a surface: for each context band and concurrency, which variant and k."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from outrider.decide.errors import DecideError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from outrider.decide.options import Option
    from outrider.decide.slo import Slo, Verdict
    from outrider.predict.observations import Observation


@dataclass(frozen=True, slots=True)
class Band:
    """A range of contexts that one representative stands for.

    Attributes:
        low, high: tokens in the cache; `high` is not included.
        context: the representative.
    """

    low: float
    high: float
    context: float

    @property
    def name(self) -> str:
        """`0-4k`, `4k-32k`, ..."""
        return f"{_short(self.low)}-{'' if math.isinf(self.high) else _short(self.high)}"

    @property
    def words(self) -> str:
        """The band for people: `8k-48k tokens`, or `any context`."""
        if math.isinf(self.high):
            return "any context" if self.low == 0 else f"{_short(self.low)}+ tokens"
        return f"{self.name} tokens"


@dataclass(frozen=True, slots=True)
class PlaceChoice:
    """What to use at one place.

    Attributes:
        band, batch: the place.
        best: the option to use.
        slo: whether it keeps the limits.
        options: all options, fastest first.
        why: one sentence with the figures that decided.
    """

    band: Band
    batch: int
    best: Option
    slo: Verdict
    options: tuple[Option, ...]
    why: str

    @property
    def losing(self) -> tuple[Option, ...]:
        """Speculative options that do not beat plain decoding beyond doubt."""
        return tuple(o for o in self.options if o.speedup is not None and o.speedup.low <= 1)


def bands_of(contexts: Sequence[float]) -> list[Band]:
    """Bands around representative contexts; edges at their geometric means (of tokens + 1k).

    Raises:
        DecideError: none, or negative ones.
    """
    ordered = sorted(set(contexts))
    if not ordered or ordered[0] < 0:
        raise DecideError("context bands need lengths of 0 tokens or more", next_step="give --context")
    edges = [math.sqrt((a + 1024) * (b + 1024)) - 1024 for a, b in pairwise(ordered)]
    lows, highs = [0.0, *edges], [*edges, math.inf]
    return [Band(low, high, context) for low, high, context in zip(lows, highs, ordered, strict=True)]


def commonest_band(bands: Sequence[Band], cells: Sequence[Observation]) -> Band:
    """The band in which most requests of the cells ran; the first one without cells."""
    counts = Counter(
        next(band for band in bands if band.low <= cell.context < band.high)
        for cell in cells
        for _ in range(cell.batch)
    )
    return max(bands, key=lambda band: counts[band]) if counts else bands[0]


def choose_place(band: Band, batch: int, options: Sequence[Option], slo: Slo) -> PlaceChoice:
    """The option to use at one place.

    Among options that keep the SLO, the fastest whose whole interval of speedup lies above 1; `baseline` wins ties.
    Where none keeps it, the same rule over all options, and the verdict says so. At a given concurrency the lowest
    TPOT also gives the highest throughput, so the objective matters between concurrencies only (`capacity`).

    Raises:
        DecideError: baseline is not among the options.
    """
    ordered = tuple(sorted(options, key=lambda o: o.tpot_s.mid))
    plain = next((o for o in ordered if not o.k), None)
    if plain is None:
        raise DecideError(f"nothing is known about baseline at {batch} users, {band.context:.0f} tokens")
    verdicts = {id(o): slo.judge(o) for o in ordered}
    able = [o for o in ordered if verdicts[id(o)] != "misses"] or list(ordered)
    sure = [o for o in able if o.speedup is not None and o.speedup.low > 1]
    # Where plain decoding misses the limit and speculation keeps it, a likely gain is enough.
    if plain not in able and not sure:
        sure = able
    best = min(sure, key=lambda o: o.tpot_s.mid) if sure else plain
    return PlaceChoice(band, batch, best, verdicts[id(best)], ordered, _why(best, ordered))


def _why(best: Option, ordered: Sequence[Option]) -> str:
    if best.speedup is not None:
        return f"{_gain(best)}, {best.source}{_far(best)}"
    rivals = [o for o in ordered if o.speedup is not None]
    if not rivals:
        return "no other variant is known"
    nearest = max(rivals, key=lambda o: o.speedup.mid if o.speedup else 0.0)
    lost = nearest.speedup is not None and nearest.speedup.high < 1
    needs = (
        f"; needs {nearest.break_even.mid:.2f} tokens a step, gets {nearest.tokens_per_step:.2f}"
        if nearest.break_even
        else ""
    )
    verdict = "loses" if lost else "is not distinguishable"
    return f"{nearest.variant} k={nearest.k} {verdict}: {_gain(nearest)}, {nearest.source}{_far(nearest)}{needs}"


def capacity(choices: Sequence[PlaceChoice]) -> dict[Band, PlaceChoice]:
    """In each band, the load with the highest throughput that keeps the SLO; bands without one are left out."""
    found: dict[Band, PlaceChoice] = {}
    for choice in choices:
        if choice.slo not in {"meets", "at risk"}:
            continue
        held = found.get(choice.band)
        if held is None or choice.best.throughput_tok_s.mid > held.best.throughput_tok_s.mid:
            found[choice.band] = choice
    return found


def _gain(option: Option) -> str:
    gain = option.speedup
    return f"{gain.mid:.2f}x ({gain.low:.2f}-{gain.high:.2f})" if gain else "plain decoding"


def _far(option: Option) -> str:
    return ", extrapolated" if option.extrapolated else ""


def _short(tokens: float) -> str:
    return f"{tokens / 1024:.0f}k" if tokens >= 1024 else f"{tokens:.0f}"
