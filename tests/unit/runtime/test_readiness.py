"""The budget of a start, its rule for slow starts, and progress from a log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.runtime import readiness
from outrider.runtime.readiness import Budget, StartProgress

if TYPE_CHECKING:
    from pathlib import Path

BUSY_LOOP = "(Worker pid=7) INFO 11-29 16:37:{:02d} [shm_broadcast.py:1] No available shared memory broadcast block"


def test_the_budget_is_a_fixed_part_plus_twice_the_reading_time() -> None:
    budget = Budget(fixed_s=300, weight_bytes=600_000_000_000, bandwidth=2e9)
    assert budget.seconds == pytest.approx(300 + 2 * 300)
    assert str(budget) == "900 s = 300 s + 2 x 600.0 GB at 2000 MB/s"


@pytest.mark.parametrize(
    ("elapsed_s", "since_progress_s", "exceeded"),
    [
        (100.0, 100.0, False),  # at the budget
        (101.0, 9.0, False),  # over it, but it made progress just now
        (101.0, 11.0, True),  # over it and stalled
        (299.0, 0.0, False),
        (301.0, 0.0, True),  # three budgets are enough for anyone
        (50.0, 50.0, False),  # silence within the budget is allowed: graph capture prints nothing for minutes
    ],
)
def test_a_start_is_given_up_when_stalled_over_budget_or_beyond_three_budgets(
    elapsed_s: float, since_progress_s: float, exceeded: bool
) -> None:
    assert Budget(fixed_s=100, stall_s=10).exceeded(elapsed_s, since_progress_s) is exceeded


def test_a_repeated_message_with_a_new_clock_time_is_no_progress() -> None:
    progress = StartProgress(())
    progress.note_lines([BUSY_LOOP.format(1)], 10.0)
    progress.note_lines([BUSY_LOOP.format(2)], 70.0)
    assert progress.progressed_at_s == 10.0
    progress.note_lines(["(Worker pid=7) INFO 11-29 16:38:00 [x.py:1] Capturing graphs 7/35"], 80.0)
    assert progress.progressed_at_s == 80.0


def test_reading_from_storage_is_progress_and_a_few_bytes_are_not() -> None:
    progress = StartProgress(())
    progress.note_bytes_read(5_000_000, 5.0)
    progress.note_bytes_read(5_004_096, 9.0)
    assert progress.progressed_at_s == 5.0
    progress.note_bytes_read(9_000_000, 12.0)
    assert progress.progressed_at_s == 12.0


def test_a_percentage_in_a_pattern_fills_the_way_from_the_phase_before() -> None:
    progress = StartProgress((("model", 0.2), (r"shards: +(?P<percent>\d+)%", 0.8)))
    progress.note_lines(["start model"], 1.0)
    assert progress.share == pytest.approx(0.2)
    progress.note_lines(["Loading shards:  50% Completed"], 2.0)
    assert progress.share == pytest.approx(0.5)
    progress.note_lines(["Loading shards: 100% Completed"], 3.0)
    assert progress.share == pytest.approx(0.8)


@given(st.lists(st.sampled_from(["alpha", "beta", "gamma 30%", "gamma 90%", "other"])))
def test_the_share_never_falls_and_stays_within_one(lines: list[str]) -> None:
    progress = StartProgress((("alpha", 0.1), ("beta", 0.5), (r"gamma (?P<percent>\d+)", 1.0)))
    before = 0.0
    for i, line in enumerate(lines):
        progress.note_lines([line], float(i))
        assert before <= (progress.share or 0.0) <= 1.0
        before = progress.share or 0.0


def test_the_time_left_comes_from_the_last_start_or_else_from_the_share_and_is_unknown_when_overdue() -> None:
    known = StartProgress((), expected_s=40.0)
    assert known.at(10.0, 300.0).eta_s == pytest.approx(30.0)
    assert known.at(41.0, 300.0).eta_s is None
    fresh = StartProgress((("half", 0.5),))
    assert fresh.at(10.0, 300.0).eta_s is None
    fresh.note_lines(["half"], 20.0)
    assert fresh.at(25.0, 300.0).eta_s == pytest.approx(15.0)


def test_bandwidth_is_measured_on_the_largest_weight_file(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(bytes(8 * 2**20))
    (tmp_path / "config.json").write_text("{}")
    measured = readiness.measure_bandwidth([tmp_path])
    assert measured is not None
    assert measured > 1e6


def test_bandwidth_is_unknown_without_a_file_large_enough_to_time(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert readiness.measure_bandwidth([tmp_path]) is None
    assert readiness.measure_bandwidth([tmp_path / "absent"]) is None
    assert readiness.measure_bandwidth([]) is None
