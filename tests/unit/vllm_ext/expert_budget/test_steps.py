"""Which steps a budget may hold in: those that the scheduler means to decode, and no other."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from outrider.vllm_ext.expert_budget.steps import Steps


def new(request: str, prompt: int, known: int | None = None) -> SimpleNamespace:
    return SimpleNamespace(req_id=request, prompt_len=prompt, prefill_token_ids=None if known is None else [0] * known)


def step(
    tokens: int, *, came: tuple[Any, ...] = (), live: dict[str, int] | None = None, output: int = 0,
    resumed: tuple[str, ...] = (), ended: tuple[str, ...] = (),
) -> SimpleNamespace:  # fmt: skip
    live = live or {}
    cached = SimpleNamespace(
        req_ids=list(live), num_computed_tokens=list(live.values()), num_output_tokens=[output] * len(live),
        resumed_req_ids=set(resumed),
    )  # fmt: skip
    return SimpleNamespace(
        scheduled_new_reqs=list(came), scheduled_cached_reqs=cached, finished_req_ids=set(ended),
        total_num_scheduled_tokens=tokens,
    )  # fmt: skip


def test_a_new_request_is_prefill_even_if_one_token_is_left_of_it() -> None:
    steps = Steps()
    assert steps.decoding(step(1, came=(new("a", 512),))) is None


def test_prefill_in_pieces_ends_where_the_prompt_does() -> None:
    steps = Steps()
    steps.decoding(step(256, came=(new("a", 300),)))
    assert steps.decoding(step(44, live={"a": 256})) is None
    assert steps.decoding(step(1, live={"a": 300})) == 1


def test_verified_drafts_count_as_tokens_of_the_step() -> None:
    steps = Steps()
    steps.decoding(step(20, came=(new("a", 10), new("b", 10))))
    assert steps.decoding(step(8, live={"a": 10, "b": 10})) == 8


def test_one_request_that_prefills_leaves_the_whole_step_alone() -> None:
    steps = Steps()
    steps.decoding(step(10, came=(new("a", 10),)))
    assert steps.decoding(step(4, live={"a": 12}, came=(new("b", 3),))) is None
    assert steps.decoding(step(2, live={"a": 13, "b": 3})) == 2


def test_a_preempted_request_computes_its_answer_again_as_prefill() -> None:
    steps = Steps()
    steps.decoding(step(10, came=(new("a", 10),)))
    assert steps.decoding(step(12, live={"a": 0}, output=20, resumed=("a",))) is None
    assert steps.decoding(step(12, live={"a": 12}, output=20)) is None
    assert steps.decoding(step(1, live={"a": 30}, output=21)) == 1
    assert steps.decoding(step(9, live={"a": 0}, output=25, resumed=("a",))) is None
    assert steps.decoding(step(1, live={"a": 34}, output=25)) is None, "the prompt of 10 is counted once"
    assert steps.decoding(step(1, live={"a": 35}, output=26)) == 1


def test_the_v2_runners_resumed_request_is_told_by_its_known_tokens() -> None:
    steps = Steps()
    steps.decoding(step(10, came=(new("a", 10, known=30),)))
    assert steps.decoding(step(10, live={"a": 10})) is None
    assert steps.decoding(step(1, live={"a": 30})) == 1


def test_a_request_that_nothing_is_known_of_is_taken_for_prefill() -> None:
    assert Steps().decoding(step(1, live={"stranger": 50})) is None


def test_ended_requests_are_forgotten_and_a_step_without_tokens_is_none() -> None:
    steps = Steps()
    steps.decoding(step(10, came=(new("a", 10),)))
    assert steps.decoding(step(0, ended=("a",))) is None
    assert steps.decoding(step(1, live={"a": 40})) is None
