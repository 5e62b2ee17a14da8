"""Passes put off: a cache that is written late holds what one holds that is written step by step."""

from __future__ import annotations

import random
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.vllm_ext.deferred_pass.passes import DeferredPasses
from outrider.vllm_ext.deferred_pass.plugin import attach

BLOCK, BLOCKS, LONGEST, WIDTH, MOST_TOKENS = 4, 60, 30, 3, 12


@dataclass
class Metadata:
    """The fields of the engine's that a pass depends on."""

    query_start_loc: torch.Tensor
    query_start_loc_cpu: torch.Tensor
    seq_lens: torch.Tensor
    num_reqs: int
    num_actual_tokens: int
    max_query_len: int
    block_table_tensor: torch.Tensor
    slot_mapping: torch.Tensor
    positions: torch.Tensor | None = None
    _num_computed_tokens_cache: torch.Tensor | None = None
    _token_to_req_indices_cache: torch.Tensor | None = None


class Proposer:
    """Like the engine's: a pass writes what follows from each row's next token, place and hidden state."""

    def __init__(self) -> None:
        self.cache = torch.full((BLOCKS * BLOCK, 2 + WIDTH), -1.0)
        self.passes = 0
        self.rows = 0
        self.most_rows = 0

    def propose(self, *, num_speculative_tokens: int, **inputs: Any) -> torch.Tensor:
        metadata = inputs["common_attn_metadata"]
        ends = metadata.query_start_loc[1:].long() - 1
        assert inputs["token_indices_to_sample"] is None or bool((inputs["token_indices_to_sample"] == ends).all())
        ids = torch.roll(inputs["target_token_ids"], -1)
        ids[ends] = inputs["next_token_ids"]
        at = inputs["target_positions"]
        rows = torch.repeat_interleave(
            torch.arange(metadata.num_reqs), metadata.query_start_loc[1:] - metadata.query_start_loc[:-1]
        )
        # Where a row goes follows from its request's blocks, and is what the slots say.
        expected = metadata.block_table_tensor[rows, at // BLOCK] * BLOCK + at % BLOCK
        assert bool((expected == metadata.slot_mapping[: metadata.num_actual_tokens]).all())
        assert bool((metadata.seq_lens == at[ends] + 1).all())
        assert metadata.max_query_len == int((metadata.query_start_loc[1:] - metadata.query_start_loc[:-1]).max())
        derived = metadata._token_to_req_indices_cache
        assert derived is None or len(derived) == len(at)
        self.cache[metadata.slot_mapping[: len(at)]] = torch.cat(
            [ids[:, None].float(), at[:, None].float(), inputs["target_hidden_states"]], dim=1
        )
        self.passes += 1
        self.rows += len(at)
        self.most_rows = max(self.most_rows, len(at))
        return torch.zeros(metadata.num_reqs, num_speculative_tokens, dtype=torch.int64)


class Engine:
    """A runner in small: requests come, grow and go, blocks are given away at once, buffers are reused."""

    def __init__(self, seed: int, *, most_steps: int | None) -> None:
        self.random = random.Random(seed)
        self.proposer = Proposer()
        self.requests: dict[str, list[int]] = {}
        self.blocks: dict[str, list[int]] = {}
        self.free = list(range(BLOCKS))
        self.born = 0
        self.buffers: dict[str, torch.Tensor] = {}
        self.propose: Any = self.proposer.propose
        if most_steps is not None:
            self.propose = DeferredPasses(
                self.proposer.propose, lambda: list(self.requests), most_steps=most_steps, most_tokens=MOST_TOKENS
            )

    def buffer(self, name: str, value: torch.Tensor) -> torch.Tensor:
        kept = self.buffers.setdefault(name, torch.zeros(64 if value.dim() == 1 else (64, *value.shape[1:])).to(value))
        kept[: len(value)] = value
        return kept[: len(value)]

    def step(self) -> None:
        # Always the same draws, so that two engines of one seed live through the same.
        joins, leaves, swaps, k = (self.random.random() for _ in range(4))
        fresh, drafts = None, 0 if k < 0.85 else 2
        gone = {name for name, tokens in self.requests.items() if len(tokens) > LONGEST}
        if self.requests and leaves < 0.12:
            gone.add(self.random.choice(sorted(self.requests)))
        for name in sorted(gone):
            self.free = self.blocks.pop(name) + self.free
            del self.requests[name]
        if len(self.requests) > 1 and swaps < 0.05:
            self.requests = dict(reversed(self.requests.items()))
        if (joins < 0.15 and len(self.requests) < 5) or not self.requests:
            fresh, self.born = f"r{self.born}", self.born + 1
            self.requests[fresh] = [self.random.randrange(100) for _ in range(self.random.choice([1, 5]))]
            self.blocks[fresh] = []
        ids, positions, slots, counts, follows = [], [], [], [], []
        for name, tokens in self.requests.items():
            first = 0 if name == fresh else len(tokens) - 1
            while len(self.blocks[name]) * BLOCK < len(tokens):
                self.blocks[name].append(self.free.pop(0))
            for at in range(first, len(tokens)):
                ids.append(tokens[at])
                positions.append(at)
                slots.append(self.blocks[name][at // BLOCK] * BLOCK + at % BLOCK)
            counts.append(len(tokens) - first)
            follows.append(self.random.randrange(100))
        starts = torch.tensor([0, *torch.tensor(counts).cumsum(0).tolist()], dtype=torch.int32)
        table = torch.zeros(len(counts), 8, dtype=torch.int32)
        for row, blocks in enumerate(self.blocks[name] for name in self.requests):
            table[row, : len(blocks)] = torch.tensor(blocks)
        at = self.buffer("positions", torch.tensor(positions))
        metadata = Metadata(
            query_start_loc=self.buffer("starts", starts),
            query_start_loc_cpu=starts,
            seq_lens=self.buffer("lengths", torch.tensor([len(tokens) for tokens in self.requests.values()])),
            num_reqs=len(counts),
            num_actual_tokens=len(ids),
            max_query_len=max(counts),
            block_table_tensor=self.buffer("table", table),
            slot_mapping=self.buffer("slots", torch.tensor(slots)),
            positions=at,
            _token_to_req_indices_cache=torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts)),
        )
        hidden = torch.tensor([[self.random.random() for _ in range(WIDTH)] for _ in ids])
        drafted = self.propose(
            num_speculative_tokens=drafts,
            target_token_ids=self.buffer("ids", torch.tensor(ids)),
            target_positions=at,
            target_hidden_states=self.buffer("hidden", hidden),
            next_token_ids=self.buffer("follows", torch.tensor(follows)),
            token_indices_to_sample=metadata.query_start_loc[1:] - 1,
            common_attn_metadata=metadata,
            num_rejected_tokens_gpu=torch.zeros(len(counts), dtype=torch.int32),
            mm_embed_inputs=None,
        )
        assert drafted.shape == (len(counts), drafts)
        for tokens, following in zip(self.requests.values(), follows, strict=True):
            tokens.append(following)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), most_steps=st.integers(1, 9), steps=st.integers(1, 80))
def test_what_is_written_late_is_what_would_have_been_written(seed: int, most_steps: int, steps: int) -> None:
    plain, late = Engine(seed, most_steps=None), Engine(seed, most_steps=most_steps)
    for _ in range(steps):
        plain.step()
        late.step()
        assert plain.requests == late.requests
    late.propose.catch_up()
    assert bool((plain.proposer.cache == late.proposer.cache).all())
    assert late.proposer.passes <= plain.proposer.passes
    # Even what a request left behind when it went is there: its blocks may be found again by their content.
    assert late.proposer.rows == plain.proposer.rows
    assert late.proposer.most_rows <= max(MOST_TOKENS, plain.proposer.most_rows)


def test_a_steady_batch_needs_one_pass_for_many_steps() -> None:
    engine = Engine(0, most_steps=8)
    engine.random = SimpleNamespace(  # type: ignore[assignment]
        random=lambda: 0.5, choice=lambda options: options[-1], randrange=lambda _: 7
    )
    for _ in range(1 + 3 * 8):
        engine.step()
    # The first step holds a prefill. Twelve rows a pass would not stop eight of a single request.
    assert (engine.propose.put_off, engine.propose.made_up) == (24, 3)
    assert engine.proposer.passes == 1 + 3


def worker(**proposer: Any) -> Any:
    known = {
        "method": "eagle3", "pass_hidden_states_to_model": True, "needs_extra_input_slots": False,
        "constant_draft_positions": False, "uses_mrope": False, "supports_mm_inputs": False, "max_num_tokens": 64,
        "set_inputs_first_pass": None, "propose": lambda **_: "drafts",
    }  # fmt: skip
    runner = SimpleNamespace(
        drafter=SimpleNamespace(**known | proposer),
        input_batch=SimpleNamespace(req_ids=["a"]),
        parallel_config=SimpleNamespace(data_parallel_size=1),
    )
    return SimpleNamespace(model_runner=runner)


@pytest.mark.parametrize(
    "unlike",
    [
        {"method": "mtp"}, {"pass_hidden_states_to_model": False}, {"needs_extra_input_slots": True},
        {"constant_draft_positions": True}, {"uses_mrope": True}, {"supports_mm_inputs": True},
    ],
)  # fmt: skip
def test_a_drafter_of_another_kind_is_left_alone(unlike: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    made = worker(**unlike)
    propose = made.model_runner.drafter.propose
    with caplog.at_level("WARNING", "vllm.outrider_deferred_pass"):
        assert not attach(made, 16)
    assert made.model_runner.drafter.propose is propose
    assert "k = 0 costs a pass of the drafter a step" in caplog.text


def test_other_model_runners_and_data_parallel_ranks_are_left_alone() -> None:
    v2 = SimpleNamespace(model_runner=SimpleNamespace(speculator=object()))
    assert not attach(v2, 16)
    ranks = worker()
    ranks.model_runner.parallel_config.data_parallel_size = 2
    assert not attach(ranks, 16)


def test_after_an_error_the_engine_goes_on_in_its_own_way(caplog: pytest.LogCaptureFixture) -> None:
    made = worker()
    propose = made.model_runner.drafter.propose
    assert attach(made, 16)
    assert made.model_runner.drafter.propose is not propose
    # No metadata: what this version hands over is not what the module knows.
    assert made.model_runner.drafter.propose(num_speculative_tokens=0) == "drafts"
    assert made.model_runner.drafter.propose is propose
    assert "off after an error" in caplog.text


def test_a_worker_is_taken_once() -> None:
    made = worker()
    assert attach(made, 16)
    propose = made.model_runner.drafter.propose
    assert attach(made, 16)
    assert made.model_runner.drafter.propose is propose


def test_a_batch_of_which_no_two_steps_fit_into_a_pass_is_left_to_the_engine() -> None:
    engine = Engine(1, most_steps=8)
    engine.propose = DeferredPasses(engine.proposer.propose, lambda: list(engine.requests), most_steps=8, most_tokens=1)
    for _ in range(20):
        engine.step()
    assert (engine.propose.put_off, engine.proposer.passes) == (0, 20)
