from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.predict.made import FLAGSHIP, SHAPE, centre

from outrider.predict.allreduce import all_reduce_s, step_collectives_s
from outrider.predict.attention import attention_s
from outrider.predict.errors import PredictError
from outrider.predict.experts import distinct_experts
from outrider.predict.model import PARTS, step_parts, step_s
from outrider.predict.places import Places
from outrider.predict.traffic import Link, accelerator, machine_of
from outrider.stack import find_stack, stack_from_text

KIMI = machine_of(find_stack(FLAGSHIP))
H200 = machine_of(find_stack(SHAPE))


def at(batch: float = 1, context: float = 0, k: float = 0, ranks: float = 1, draft: float = 0) -> Places:
    return Places.of([(batch, context, k, ranks, draft)])


def test_uniform_routing_touches_the_published_unions() -> None:
    tokens = np.array([1.0, 2, 4, 8, 16, 32, 64, 128])
    assert distinct_experts(tokens, 384, 8) == pytest.approx([8, 15.8, 31, 59.5, 110, 188, 284, 358], abs=0.5)


def test_an_overlap_of_three_quarters_gives_the_measured_unions_of_256_experts() -> None:
    assert distinct_experts(np.array([1.0, 4, 8, 16]), 256, 8, 0.75) == pytest.approx([8, 22, 36, 56], abs=1.5)


@given(st.floats(1, 4096), st.floats(0.5, 1), st.floats(0, 8))
def test_a_union_lies_between_one_token_s_experts_and_all(tokens: float, overlap: float, skew: float) -> None:
    here, more = distinct_experts(np.array([tokens, tokens * 2]), 384, 8, overlap, skew)
    assert 8 <= here <= more <= 384


def test_skewed_popularity_saturates_later() -> None:
    few, many = distinct_experts(np.array([2.0, 256]), 384, 8, 1.0, 4.0) / distinct_experts(
        np.array([2.0, 256]), 384, 8
    )
    assert few > 0.9
    assert many < 0.7


def test_the_flagship_s_expert_has_its_published_size() -> None:
    # 22.0 MB of INT4 and 2.75 MB of scales over eight GPUs.
    assert KIMI.expert_bytes * 8 / 1e6 == pytest.approx(24.77, abs=0.02)
    assert KIMI.kv_bytes * KIMI.layers == 70_272


def test_the_flagship_s_all_reduces_take_their_profiled_share_by_the_priors_alone() -> None:
    # 51.5 % of 12.1 ms.
    parts = step_parts(KIMI, at(), centre(KIMI))
    assert parts["allreduce"][0] == pytest.approx(0.515 * 12.1e-3, rel=0.1)
    assert step_s(KIMI, at(), centre(KIMI))[0] == pytest.approx(12.1e-3, rel=0.1)


def test_all_reduce_changes_its_protocol_with_size() -> None:
    machine = machine_of(find_stack(FLAGSHIP))
    both = [Link(3.5e-6, 22e9), Link(8e-6, 45e9)]
    choice = type(machine)(**{f: getattr(machine, f) for f in machine.__slots__} | {"links": tuple(both)})
    for nbytes, faster in ((14_336.0, 0), (64e6, 1)):
        alone = [
            all_reduce_s(type(machine)(**{f: getattr(choice, f) for f in choice.__slots__} | {"links": (one,)}),
                         np.array([nbytes]), 1, 1)[0]
            for one in both
        ]  # fmt: skip
        assert all_reduce_s(choice, np.array([nbytes]), 1, 1)[0] == alone[faster] == min(alone)


def test_one_gpu_reduces_nothing() -> None:
    assert step_collectives_s(H200, np.array([128.0]), np.array([1.0]), 1, 1)[0] == 0


def test_a_kernel_that_rereads_pays_for_every_verified_token() -> None:
    plain, verified = (attention_s(KIMI, at(32, 16384, k), 0.6, 3)[0] for k in (0, 3))
    assert verified == pytest.approx(4 * plain, rel=0.02)
    assert attention_s(H200, at(32, 16384, 3), 0.6, 3)[0] == attention_s(H200, at(32, 16384, 0), 0.6, 3)[0]


def test_context_parallelism_helps_few_rows_and_not_many() -> None:
    def gain(batch: float) -> float:
        one, four = (attention_s(KIMI, at(batch, 65536, 0, ranks), 0.6, 3)[0] for ranks in (1, 4))
        return float(one / four)

    assert gain(1) > 2
    assert gain(128) == pytest.approx(1, abs=0.02)


@given(st.integers(1, 256), st.integers(0, 131072), st.integers(0, 7))
def test_parts_are_positive_and_add_up(batch: int, context: int, k: int) -> None:
    places = at(batch, context, k, 1, 1e9 if k else 0)
    parts = step_parts(KIMI, places, centre(KIMI))
    assert tuple(parts) == PARTS
    assert all(value[0] >= 0 for value in parts.values())
    assert step_s(KIMI, places, centre(KIMI))[0] == pytest.approx(sum(v[0] for v in parts.values()))


def test_more_work_never_takes_less_time() -> None:
    base = step_s(KIMI, at(4, 1024, 3, 1, 1e9), centre(KIMI))[0]
    for more in (at(8, 1024, 3, 1, 1e9), at(4, 4096, 3, 1, 1e9), at(4, 1024, 4, 1, 1e9), at(4, 1024, 3, 1, 2e9)):
        assert step_s(KIMI, more, centre(KIMI))[0] > base


def test_an_unknown_accelerator_is_refused_with_what_is_known() -> None:
    with pytest.raises(PredictError, match="RTX PRO 6000"):
        accelerator("Abacus 9")


def test_an_unknown_target_is_refused_with_what_to_give() -> None:
    text = """
    schema: 1
    name: x
    title: x
    target: {model: nobody/nothing, served_name: x, license: MIT, max_model_len: 10, weight_gb: 1}
    engine: {name: vllm, version: 0.33.0, build: cuda}
    node: {description: x, accelerator: H200, gpus: 1}
    variants: {baseline: {}}
    """
    with pytest.raises(PredictError, match="--config"):
        machine_of(stack_from_text(text))
