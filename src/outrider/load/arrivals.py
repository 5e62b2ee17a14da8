"""When an open loop sends. The schedule is fixed before the run and never waits for answers."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import orjson

from outrider.errors import LoadError
from outrider.load.plan import Closed, Constant, Gamma, Poisson, Trace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def schedule(arrivals: Closed | Poisson | Constant | Gamma | Trace, seed: int) -> Iterator[float]:
    """Send times in seconds from the start, ascending; endless except for a trace.

    Gaps of `gamma` have shape `burstiness` and mean 1/rate, so their coefficient of variation is
    1/sqrt(burstiness).

    Raises:
        ValueError: for a closed loop, which has no schedule.
        LoadError: for a trace that cannot be read.
    """
    if isinstance(arrivals, Closed):
        raise ValueError("a closed loop has no schedule")  # noqa: TRY004 - a wrong value of a union
    if isinstance(arrivals, Trace):
        return iter(read_trace(arrivals.file))
    return _accumulate(arrivals, random.Random(seed))  # noqa: S311 - a reproducible schedule, not secrets


def _accumulate(arrivals: Poisson | Constant | Gamma, rng: random.Random) -> Iterator[float]:
    rate = arrivals.rate
    if isinstance(arrivals, Constant):
        n = 0
        while True:
            yield n / rate  # a product, not a sum: errors of rounding do not add up
            n += 1
    shape = arrivals.burstiness if isinstance(arrivals, Gamma) else 1.0
    at = 0.0
    while True:
        yield at
        at += rng.gammavariate(shape, 1 / (rate * shape))


def read_trace(path: Path) -> list[float]:
    """Offsets in seconds, sorted and shifted to begin at 0: a number a line, or JSON objects with `at_s`."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise LoadError(f"the trace cannot be read: {error.strerror}", evidence=str(path)) from error
    times: list[float] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = orjson.loads(line)
            times.append(float(row["at_s"] if isinstance(row, dict) else row))
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
            raise LoadError(
                "a line of the trace is not a time",
                evidence=f"{path}:{number}: {line[:80]!r}",
                next_step='write seconds, or {"at_s": seconds}, in each line',
            ) from error
    if not times:
        raise LoadError("the trace is empty", evidence=str(path))
    first = min(times)
    return [t - first for t in sorted(times)]
