"""The controller takes no more than its share of a step, however short steps are and however dear it is."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from tests.unit.vllm_ext.simulated import Engine, Traffic, settings

from outrider.vllm_ext.hook import Hook
from outrider.vllm_ext.pace import LONGEST, SHARE, Pace
from outrider.vllm_ext.state_file import StateFile

if TYPE_CHECKING:
    from pathlib import Path

LOG = logging.getLogger("vllm.outrider_utility")


def run(pace: Pace, steps: int, step_s: float, dear_s: float, cheap_s: float) -> float:
    """Share of the time that a controller of such costs takes."""
    spent = 0.0
    for _ in range(steps):
        due = pace.begin()
        cost = dear_s if due else cheap_s
        spent += cost
        if pace.weight:
            pace.spent(cost, whole=due)
        pace.stepped(step_s)
    return spent / (steps * step_s)


@hypothesis_settings(max_examples=200, deadline=None)
@given(
    step_ms=st.floats(0.5, 60.0),
    dear_us=st.floats(5.0, 120.0),
    light=st.floats(0.02, 0.2),
)
def test_its_share_is_kept_wherever_one_step_in_sixteen_is_enough(step_ms: float, dear_us: float, light: float) -> None:
    pace, dear, cheap = Pace(), dear_us * 1e-6, dear_us * light * 1e-6
    steps = int(1000 / step_ms) + 1
    for _ in range(4):  # seconds, after each of which it chooses anew
        run(pace, steps, step_ms * 1e-3, dear, cheap)
        pace.choose()
    share = run(pace, 160 * pace.stride, step_ms * 1e-3, dear, cheap)
    floor = (dear + (LONGEST - 1) * cheap) / LONGEST / (step_ms * 1e-3)
    assert share <= max(SHARE, floor) * 1.001
    if pace.stride > 1:  # and no step more is left out than that takes
        n = pace.stride - 1
        assert (dear + (n - 1) * cheap) / n > 0.99 * SHARE * step_ms * 1e-3


def test_long_steps_are_all_taken_in_and_shorter_ones_are_noticed_within_seconds() -> None:
    pace = Pace()
    for step_s, expected in ((0.030, {1}), (0.002, {12, 13}), (0.030, {1})):
        for _ in range(5):
            run(pace, int(1 / step_s), step_s, 40e-6, 3e-6)
            pace.choose()
        assert pace.stride in expected


def test_what_was_not_measured_is_counted_all_the_same() -> None:
    pace = Pace()
    pace.stride = 8
    spent = run(pace, 6400, 0.001, 40e-6, 3e-6) * 6400 * 0.001
    assert pace.total_s == pytest.approx(spent)


def test_few_steps_say_nothing() -> None:
    pace = Pace()
    run(pace, 10, 0.001, 90e-6, 9e-6)
    pace.choose()
    assert pace.stride == 1


class Clocks:
    """A wall clock that steps advance, and a thread's clock that each reading advances."""

    def __init__(self, step_s: float) -> None:
        self.now, self.cpu, self.step_s = 0.0, 0.0, step_s

    def wall(self) -> float:
        return self.now

    def thread(self) -> float:
        self.cpu += 20e-6  # so that every measured step has taken that much
        return self.cpu


@pytest.mark.parametrize(("step_s", "whole"), [(0.030, 1.0), (0.001, 1 / LONGEST)])
def test_short_steps_are_followed_and_only_some_taken_in(tmp_path: Path, step_s: float, whole: float) -> None:
    clocks, lookup = Clocks(step_s), [0, *[3] * 8]
    held = settings(3, hold=True)
    hook = Hook(
        lookup, lambda: held, StateFile(tmp_path / "figures" / "1.json", LOG), LOG, engine_k=3,
        clock=clocks.wall, spent=clocks.thread,
    )  # fmt: skip
    scheduled = SimpleNamespace(
        num_scheduled_tokens={"a": 4},
        total_num_scheduled_tokens=4,
        num_spec_tokens_to_schedule=3,
        scheduled_new_reqs=[],
    )
    output = SimpleNamespace(req_id_to_index={"a": 0}, sampled_token_ids=[[5, 5]])

    def steps(count: int) -> None:
        for _ in range(count):
            clocks.now += step_s
            hook.step(scheduled, output, {"a"})

    steps(int(4 / step_s))
    controller = hook.controller
    assert controller is not None
    before = controller.clean_steps, hook.pace.followed
    steps(4000)
    clean, followed = (
        now - then for now, then in zip((controller.clean_steps, hook.pace.followed), before, strict=True)
    )
    assert clean + followed == 4000
    assert clean / 4000 == pytest.approx(whole, rel=0.02)
    # Each was timed from the end of the step before it, taken in or not.
    assert controller.band_of(1).times[3].samples() == pytest.approx([step_s] * len(controller.band_of(1).times[3]))


PAYS = Traffic({0: 1.0, 1: 1.1, 2: 1.2, 3: 1.3}, acceptance=0.7, batch=4)
LOSES = Traffic({0: 1.0, 1: 1.3, 2: 1.6, 3: 1.9}, acceptance=0.2, batch=4)


@pytest.mark.parametrize("stride", [4, 16])
def test_with_few_steps_taken_in_it_follows_the_traffic_more_slowly_and_chooses_as_well(stride: int) -> None:
    engine = Engine(settings(3), seed=5, stride=stride)
    band = engine.controller.band_of(4)
    for traffic, best in ((PAYS, {2, 3}), (LOSES, {0}), (PAYS, {2, 3})):
        engine.run(traffic, 1500 * stride)
        assert band.k in best
        assert engine.run(traffic, 2000 * stride) >= 0.95 * traffic.best
