from __future__ import annotations

import json
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from outrider.vllm_ext.hook import Hook
from outrider.vllm_ext.settings import Settings, choices, read_settings
from outrider.vllm_ext.state_file import StateFile, read_state

LOG = logging.getLogger("vllm.outrider_utility")
SETTINGS = Settings(prior=((1, 4, 3), (5, 8, 1)), ks=(0, 1, 2, 3))
STATIC = [0, 3, 3, 3, 3, 1, 1, 1, 1]


class Made:
    """A hook with a clock of its own."""

    def __init__(self, directory: Path, settings: Any = lambda: SETTINGS, lookup: list[int] | None = None) -> None:
        self.now, self.drafted = 0.0, 3
        # As the engine is started: every k at some batch size, so that graphs exist.
        self.lookup = [0, 3, 3, 3, 3, 1, 1, 0, 2] if lookup is None else lookup
        self.state = directory / "figures" / "1.json"
        self.hook = Hook(self.lookup, settings, StateFile(self.state, LOG), LOG, engine_k=3, clock=lambda: self.now)

    def step(self, k: int = 3, tokens: int = 2, took: float = 0.02, **changes: Any) -> None:
        self.now += took
        verified, self.drafted = self.drafted, k
        scheduled = SimpleNamespace(
            num_scheduled_tokens={"a": 1 + verified},
            total_num_scheduled_tokens=1 + verified,
            num_spec_tokens_to_schedule=k,
            scheduled_new_reqs=[],
        )
        vars(scheduled).update(changes)
        output = SimpleNamespace(req_id_to_index={"a": 0}, sampled_token_ids=[[5] * tokens])
        self.hook.step(scheduled, output, {"a"})

    @property
    def samples(self) -> list[float]:
        assert self.hook.controller is not None
        return self.hook.controller.band_of(1).times[3].samples()


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return Made(tmp_path)


def test_the_prior_takes_the_place_of_the_schedule_that_the_engine_was_started_with(made: Made) -> None:
    assert made.lookup == STATIC


def test_only_decode_steps_that_follow_decode_steps_are_timed(made: Made) -> None:
    made.step(took=9.0)  # nothing is known of the step before
    made.step(took=9.0)  # the first decode step: where its time began is not known
    made.step(took=0.02)
    made.step(took=7.0, scheduled_new_reqs=[object()])  # a prefill
    made.step(took=7.0)  # its tail
    made.step(took=0.03)
    made.step(took=7.0, total_num_scheduled_tokens=512)  # a chunk of a prompt
    made.step(took=7.0)
    made.step(took=0.04)

    assert made.samples == pytest.approx([0.02, 0.03, 0.04])
    assert made.hook.other_steps == 3


def test_a_pause_of_the_engine_is_no_step_time(made: Made) -> None:
    for _ in range(3):
        made.step()
    made.now += 3600.0  # nobody asks for anything; the next request begins with its prompt
    made.step(scheduled_new_reqs=[object()])
    for _ in range(3):
        made.step()

    assert all(seconds == pytest.approx(0.02) for seconds in made.samples)


def test_the_k_that_counts_is_the_one_that_was_drafted(made: Made) -> None:
    for _ in range(4):
        made.step(k=3)
    before = len(made.samples)
    made.step(k=2)  # asked for 3, drafted 2
    made.step(k=3)  # verified 2, drafted 3
    made.step(k=3)

    assert len(made.samples) == before + 1


def test_steps_after_drafts_were_left_out_do_not_count(made: Made) -> None:
    for _ in range(4):
        made.step()
    before = len(made.samples)
    made.step(skip_drafts=True)
    made.step()

    assert len(made.samples) == before + 1
    assert made.hook.other_steps == 2


def test_tokens_of_requests_that_have_ended_are_not_counted(made: Made) -> None:
    made.step()
    scheduled = SimpleNamespace(
        num_scheduled_tokens={"a": 4, "gone": 4},
        total_num_scheduled_tokens=8,
        num_spec_tokens_to_schedule=3,
        scheduled_new_reqs=[],
    )
    output = SimpleNamespace(req_id_to_index={"a": 0, "gone": 1}, sampled_token_ids=[[5], [5] * 4])
    made.hook.step(scheduled, output, {"a"})

    assert made.hook.controller is not None
    assert made.hook.controller.acceptance.tokens(3) == pytest.approx(1.0)


def test_an_exception_inside_puts_the_static_schedule_back_and_says_so_once(
    made: Made, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def explode(*_: object) -> None:
        made.lookup[1] = 0
        raise ZeroDivisionError("in the controller")

    assert made.hook.controller is not None
    monkeypatch.setattr(made.hook.controller, "observe", explode)
    with caplog.at_level(logging.INFO, logger=LOG.name):
        for _ in range(5):
            made.step()

    assert made.lookup == STATIC
    assert made.hook.fault == "ZeroDivisionError: in the controller"
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "the static schedule is in force" in caplog.text
    state = read_state(made.state)
    assert state is not None
    assert state["fault"] == "ZeroDivisionError: in the controller"


def test_figures_that_cannot_be_exported_put_the_static_schedule_back_and_reach_no_engine(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    def explode(*_: object) -> None:
        raise RuntimeError("no figures")

    monkeypatch.setattr(made.hook, "_export", explode)
    made.lookup[1] = 0
    for _ in range(60):
        made.step()
    assert made.hook.fault == "RuntimeError: no figures"
    assert made.lookup == STATIC


def test_an_engine_output_of_another_form_is_a_fault_and_not_a_crash(made: Made) -> None:
    made.hook.step(SimpleNamespace(), SimpleNamespace(), set())

    assert made.hook.fault is not None
    assert made.hook.fault.startswith("AttributeError")
    assert made.lookup == STATIC


@pytest.mark.parametrize(
    ("settings", "lookup", "why"),
    [
        (lambda: read_settings({}), [0, 3], "OUTRIDER_UTILITY is not set"),
        (lambda: Settings(prior=((1, 8, 2),), ks=(0, 1, 2)), [0, 3], "ks end at 2, the engine drafts up to 3"),
    ],
)
def test_settings_that_do_not_fit_leave_the_engines_own_schedule(
    tmp_path: Path, settings: Any, lookup: list[int], why: str
) -> None:
    made = Made(tmp_path, settings, lookup)
    made.step()

    assert made.hook.fault is not None
    assert why in made.hook.fault
    assert made.lookup == [0, 3]


def test_an_engine_without_k_by_batch_size_is_a_fault_that_is_exported(tmp_path: Path) -> None:
    state = StateFile(tmp_path / "figures" / "1.json", LOG)
    hook = Hook(None, lambda: SETTINGS, state, LOG, engine_k=3)

    assert hook.fault is not None
    assert "data parallel" in hook.fault
    exported = read_state(tmp_path / "figures" / "1.json")
    assert exported is not None
    assert exported["fault"] == hook.fault


def test_figures_are_exported_once_a_second_and_taken_away_at_the_end(made: Made) -> None:
    def written() -> int:
        return made.state.stat().st_mtime_ns

    first = written()
    for _ in range(40):
        made.step(took=0.02)
    assert written() == first
    for _ in range(20):
        made.step(took=0.02)
    assert written() > first
    state = read_state(made.state)
    assert state is not None
    assert state["bands"][0]["batch"] == "1"
    made.hook.close()
    assert read_state(made.state) is None


@pytest.mark.parametrize(
    "text",
    [
        "no json", "[]", "{}", '{"prior": [[1, 8, 3]]}', '{"prior": [[1, 8, 3]], "ks": [0, 3], "speed": 1}',
        '{"prior": [[1, 8]], "ks": [0, 3]}', '{"prior": [[2, 8, 3]], "ks": [0, 3]}', '{"prior": [], "ks": [0, 3]}',
        '{"prior": [[1, 8, 2]], "ks": [0, 3]}', '{"prior": [[1, 8, 3]], "ks": [3]}',
        '{"prior": [[1, 8, 3]], "ks": [0, 3], "test_steps": 0}', '{"prior": [[1, 8, 3]], "ks": [0, 3], "budget": 0}',
    ],
)  # fmt: skip
def test_settings_that_cannot_be_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"OUTRIDER_UTILITY|prior|ks|budget|step counts|values to unpack"):
        read_settings({"OUTRIDER_UTILITY": text})


def test_settings_are_read_as_they_were_written() -> None:
    text = json.dumps({"prior": [[1, 4, 3], [5, 8, 0]], "ks": [0, 1, 3], "hold": True})
    found = read_settings({"OUTRIDER_UTILITY": text})
    assert (found.prior_k(4), found.prior_k(5), found.prior_k(99)) == (3, 0, 0)
    assert found.hold


@pytest.mark.parametrize(
    ("k", "expected"),
    [(1, (0, 1)), (3, (0, 1, 2, 3)), (5, (0, 1, 2, 3, 5)), (7, (0, 1, 2, 4, 7)), (16, (0, 1, 2, 4, 8, 16))],
)
def test_few_k_are_tried_below_a_large_bound(k: int, expected: tuple[int, ...]) -> None:
    assert choices(k) == expected
