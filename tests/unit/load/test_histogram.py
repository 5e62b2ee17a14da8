"""Percentiles within their promised error, in bounded memory."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.load.histogram import Sketch

VALUES = st.lists(st.floats(1e-6, 1e4), min_size=1, max_size=300)


def sketch_of(values: list[float]) -> Sketch:
    sketch = Sketch()
    for value in values:
        sketch.add(value)
    return sketch


@given(VALUES, st.sampled_from([0.01, 0.5, 0.9, 0.95, 0.99, 1.0]))
def test_a_percentile_is_within_a_fifth_of_a_percent_of_the_sample(values: list[float], q: float) -> None:
    exact = sorted(values)[max(0, -(-int(q * 1e6) * len(values) // 1_000_000) - 1)]
    assert sketch_of(values).quantile(q) == pytest.approx(exact, rel=0.0021)


@given(VALUES)
def test_mean_and_ends_are_exact(values: list[float]) -> None:
    sketch = sketch_of(values)
    assert sketch.mean == pytest.approx(sum(values) / len(values))
    assert (sketch.low, sketch.high, sketch.count) == (min(values), max(values), len(values))


@given(VALUES, VALUES)
def test_merging_equals_counting_together(a: list[float], b: list[float]) -> None:
    merged, together = sketch_of(a), sketch_of(a + b)
    merged.merge(sketch_of(b))
    assert [merged.quantile(q) for q in (0.1, 0.5, 0.99)] == [together.quantile(q) for q in (0.1, 0.5, 0.99)]
    assert (merged.count, merged.low, merged.high) == (together.count, together.low, together.high)


def test_memory_does_not_grow_with_the_number_of_values() -> None:
    rng = random.Random(3)
    sketch = sketch_of([rng.lognormvariate(-3, 1) for _ in range(20_000)])
    before = sketch.buckets
    for _ in range(100_000):
        sketch.add(rng.lognormvariate(-3, 1))
    assert before < sketch.buckets < 1.3 * before < 3500


def test_zero_negative_and_nothing() -> None:
    assert Sketch().quantile(0.5) is None
    assert Sketch().mean is None
    sketch = sketch_of([0.0, -1.0, 5.0])
    assert sketch.low == 0.0
    assert sketch.quantile(0.5) == pytest.approx(0.0, abs=1e-6)
    assert sketch.quantile(1.0) == 5.0
