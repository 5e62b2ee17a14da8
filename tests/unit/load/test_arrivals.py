"""Schedules have the rate, the spread and the reproducibility that they promise."""

from itertools import islice, pairwise
from pathlib import Path
from statistics import fmean, pstdev

import pytest

from outrider.errors import LoadError
from outrider.load.arrivals import read_trace, schedule
from outrider.load.plan import Closed, Constant, Gamma, Poisson, Trace


def gaps(arrivals: Poisson | Constant | Gamma, n: int = 20_000, seed: int = 1) -> list[float]:
    return [b - a for a, b in pairwise(islice(schedule(arrivals, seed), n))]


@pytest.mark.parametrize(
    ("arrivals", "spread"),
    [
        (Poisson(rate=8), 1.0),
        (Gamma(rate=8, burstiness=1), 1.0),
        (Gamma(rate=8, burstiness=0.25), 2.0),
        (Gamma(rate=8, burstiness=4), 0.5),
        (Constant(rate=8), 0.0),
    ],
)
def test_mean_gap_and_coefficient_of_variation(arrivals: Poisson | Constant | Gamma, spread: float) -> None:
    found = gaps(arrivals)
    assert fmean(found) == pytest.approx(1 / 8, rel=0.05)
    assert pstdev(found) / fmean(found) == pytest.approx(spread, rel=0.05, abs=1e-6)


def test_the_same_seed_gives_the_same_schedule_and_another_does_not() -> None:
    assert gaps(Poisson(rate=3), 50, seed=5) == gaps(Poisson(rate=3), 50, seed=5)
    assert gaps(Poisson(rate=3), 50, seed=5) != gaps(Poisson(rate=3), 50, seed=6)


def test_a_constant_schedule_does_not_drift() -> None:
    assert next(islice(schedule(Constant(rate=3), 0), 300_000, None)) == 100_000.0


def test_a_trace_is_sorted_and_begins_at_zero(tmp_path: Path) -> None:
    file = tmp_path / "trace.txt"
    file.write_text('12.5\n\n{"at_s": 11.0}\n14\n')
    assert list(schedule(Trace(file=file), 0)) == [0.0, 1.5, 3.0]


@pytest.mark.parametrize("text", ["1.0\nsoon\n", '{"time": 3}\n', "[1]\n"])
def test_a_trace_with_another_content_names_the_line(tmp_path: Path, text: str) -> None:
    file = tmp_path / "trace.txt"
    file.write_text(text)
    with pytest.raises(LoadError, match=rf"{file}:\d"):
        read_trace(file)


def test_an_empty_or_absent_trace_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "trace.txt"
    with pytest.raises(LoadError, match="cannot be read"):
        read_trace(file)
    file.write_text("\n")
    with pytest.raises(LoadError, match="empty"):
        read_trace(file)


def test_a_closed_loop_has_no_schedule() -> None:
    with pytest.raises(ValueError, match="closed loop"):
        schedule(Closed(concurrency=1), 0)
