"""Passes put off: a cache that is written late holds what one holds that is written step by step."""

from __future__ import annotations

import random
from contextlib import nullcontext
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.vllm_ext.deferred_pass.plugin import attach
from outrider.vllm_ext.deferred_pass.v1 import DeferredPasses
from outrider.vllm_ext.deferred_pass.v2 import SpeculatorPasses

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
        self.written: set[int] = set()  # blocks that had an owner in the last step
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

    def forward(self) -> None:
        """The target's part of a step: where groups of caches share one memory it writes into blocks that are new."""
        if isinstance(self.propose, DeferredPasses):
            self.propose.before_step(self.requests)
        owned = {block for blocks in self.blocks.values() for block in blocks}
        for block in sorted(owned - self.written):
            self.proposer.cache[block * BLOCK : (block + 1) * BLOCK] = -2.0
        self.written = owned

    def step(self) -> None:
        # Always the same draws, so that two engines of one seed live through the same.
        joins, leaves, swaps, k = (self.random.random() for _ in range(4))
        fresh, drafts = None, 0 if k < 0.85 else 2
        gone = {name for name, tokens in self.requests.items() if len(tokens) > LONGEST}
        if self.requests and leaves < 0.12:
            gone.add(self.random.choice(sorted(self.requests)))
        for name in sorted(gone):
            self.written -= set(self.blocks[name])
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
        self.forward()
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
        drafter=SimpleNamespace(**known | proposer), input_batch=SimpleNamespace(req_ids=["a"]), **around()
    )
    return SimpleNamespace(model_runner=runner)


def around() -> dict[str, Any]:
    """What both model runners have."""
    parallel = {"data_parallel_size": 1, "prefill_context_parallel_size": 1, "enable_eplb": False}
    return {
        "parallel_config": SimpleNamespace(**parallel),
        "vllm_config": SimpleNamespace(kv_transfer_config=None),
        "execute_model": lambda scheduled, **_: scheduled,
        "device": SimpleNamespace(type="cpu"),
    }


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


def test_a_model_runner_that_it_does_not_know_is_left_alone() -> None:
    assert not attach(SimpleNamespace(model_runner=SimpleNamespace(speculator=object(), **around())), 16)
    assert not attach(SimpleNamespace(model_runner=SimpleNamespace(**around())), 16)


@pytest.mark.parametrize(
    ("config", "field", "value"),
    [
        ("parallel_config", "data_parallel_size", 2),
        ("parallel_config", "prefill_context_parallel_size", 2),
        ("parallel_config", "enable_eplb", True),
        ("vllm_config", "kv_transfer_config", object()),
    ],
)
def test_ranks_that_wait_for_each_other_and_caches_that_are_handed_on_are_left_alone(
    config: str, field: str, value: object
) -> None:
    made = worker()
    setattr(getattr(made.model_runner, config), field, value)
    assert not attach(made, 16)


def test_after_an_error_the_engine_goes_on_in_its_own_way(caplog: pytest.LogCaptureFixture) -> None:
    made = worker()
    propose, execute = made.model_runner.drafter.propose, made.model_runner.execute_model
    assert attach(made, 16)
    assert made.model_runner.drafter.propose is not propose
    assert made.model_runner.execute_model is not execute
    # No metadata: what this version hands over is not what the module knows.
    assert made.model_runner.drafter.propose(num_speculative_tokens=0) == "drafts"
    assert made.model_runner.drafter.propose is propose
    assert made.model_runner.execute_model is execute
    assert "off after an error" in caplog.text


def test_a_step_that_says_nothing_of_its_requests_is_run_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    made = worker()
    assert attach(made, 16)
    assert made.model_runner.execute_model("no scheduler output", dummy_run=True) == "no scheduler output"
    assert not caplog.text
    assert made.model_runner.execute_model("no scheduler output") == "no scheduler output"
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


class Tables:
    """Block tables of the V2 runner: what its kernels see are those that were gathered last."""

    def __init__(self) -> None:
        self.gathered: list[int] = []

    def gather_block_tables(self, idx_mapping: torch.Tensor, *, num_reqs_padded: int) -> None:
        self.gathered = [*idx_mapping.tolist(), num_reqs_padded]


def v2_step(passes: SpeculatorPasses, names: str, k: int, **changes: Any) -> Any:
    count = len(names)
    batch = {
        "req_ids": list(names), "num_reqs": count, "num_reqs_after_padding": count + 1, "num_tokens": count,
        "num_draft_tokens": 0, "has_prefill": False, "idx_mapping": torch.tensor([ord(one) - 97 for one in names]),
        "positions": torch.arange(count + 3), "seq_lens_cpu_upper_bound": torch.ones(count, dtype=torch.int32),
    } | changes  # fmt: skip
    aux = [torch.ones(count + 3, 2), torch.ones(count + 3, 2)]
    return passes(
        SimpleNamespace(**batch), None, None, aux[0], aux, None, None, torch.arange(26)[:, None], None, None, None,
        num_speculative_tokens=k, dp_sync_state=None, mm_inputs=None,
    )  # fmt: skip


@pytest.fixture
def v2(monkeypatch: pytest.MonkeyPatch) -> SpeculatorPasses:
    """Passes over a speculator that drafts nothing; what is made up for is noted in `ran`."""
    speculator = SimpleNamespace(block_tables=Tables(), draft_tokens=torch.zeros(8, 3, dtype=torch.int64))
    passes = SpeculatorPasses(speculator, lambda *_, **__: "drafts", nullcontext, most_steps=4, most_tokens=64)
    passes.ran = []  # type: ignore[attr-defined]

    def run(steps: list[Any], requests: list[str]) -> None:
        passes.ran.append(("".join(requests), len(steps)))  # type: ignore[attr-defined]
        speculator.block_tables.gather_block_tables(passes._first.slots, num_reqs_padded=len(requests))

    monkeypatch.setattr(passes, "run", run)
    return passes


def test_v2_keeps_copies_of_one_row_a_request_and_answers_with_no_drafts(v2: SpeculatorPasses) -> None:
    drafts = v2_step(v2, "db", 0)
    assert drafts.tolist() == [[-1, -1, -1]] * 2
    (kept,), first = v2._steps, v2._first
    assert first is not None
    assert (kept.tokens.tolist(), first.slots.tolist(), first.positions.tolist()) == ([3, 1], [3, 1], [0, 1])
    assert kept.hidden.shape == (2, 4)
    assert v2.ran == []  # type: ignore[attr-defined]


def test_v2_makes_up_before_others_get_the_slots_and_before_drafting(v2: SpeculatorPasses) -> None:
    v2_step(v2, "ab", 0)
    v2_step(v2, "ab", 0)
    v2.before_step({"a": 1, "b": 1})
    assert v2.ran == []  # type: ignore[attr-defined]
    v2.before_step({"a": 1, "c": 1})
    assert v2.ran == [("ab", 2)]  # type: ignore[attr-defined]
    v2_step(v2, "ac", 0)
    assert v2_step(v2, "ca", 3) == "drafts"
    assert v2.ran == [("ab", 2), ("ac", 1)]  # type: ignore[attr-defined]
    # The engine's own pass finds the blocks where it had put them: of its order, with its padding.
    assert v2._speculator.block_tables.gathered == [2, 0, 3]


@pytest.mark.parametrize(
    "changes", [{"has_prefill": True}, {"num_tokens": 5, "num_draft_tokens": 3}, {"num_tokens": 1}]
)
def test_v2_leaves_other_steps_to_the_engine(v2: SpeculatorPasses, changes: dict[str, Any]) -> None:
    assert v2_step(v2, "ab", 0, **changes) == "drafts"
    assert v2.put_off == 0
    assert v2._speculator.block_tables.gathered == []


def test_v2_leaves_a_step_to_the_engine_that_has_no_cache_yet(v2: SpeculatorPasses) -> None:
    del v2._speculator.block_tables  # as while a GPU engine measures how much memory is left
    assert v2_step(v2, "ab", 0, dummy_run=True) == "drafts"
    assert v2_step(v2, "ab", 0) == "drafts"


def v2_worker(**unlike: Any) -> Any:
    known = {
        "method": "eagle3", "advance_draft_positions": True, "max_num_tokens": 64, "propose": lambda *_, **__: "drafts",
        "_build_uniform_attn_metadata": None,
    }  # fmt: skip
    runner = SimpleNamespace(speculator=SimpleNamespace(**known | unlike), _draft_workspace_lane=1, **around())
    return SimpleNamespace(model_runner=runner)


@pytest.mark.parametrize("unlike", [{"method": "mtp"}, {"advance_draft_positions": False}])
def test_a_speculator_of_another_kind_is_left_alone(unlike: dict[str, Any]) -> None:
    assert attach(v2_worker(), 16)
    assert not attach(v2_worker(**unlike), 16)


@pytest.mark.parametrize(("device", "rows"), [("cpu", 256), ("cuda", 1024), ("xpu", 256)])
def test_a_pass_is_as_long_as_pays_on_its_device(device: str, rows: int) -> None:
    for made in (v2_worker(max_num_tokens=8192), worker(max_num_tokens=8192)):
        made.model_runner.device.type = device
        assert attach(made, 16)
        assert made.outrider_deferred_passes._most_tokens == rows
    small = v2_worker(max_num_tokens=64)
    assert attach(small, 16)
    assert small.outrider_deferred_passes._most_tokens == 64
