"""Routing under a budget against a slow reference, and what must hold whatever the logits are."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from tests.unit.vllm_ext.expert_budget import reference  # noqa: E402

from outrider.vllm_ext.expert_budget.routing import (  # noqa: E402
    Routing,
    chosen_weight,
    distinct,
    drop,
    kept_experts,
    reroute,
)


@st.composite
def cases(draw: st.DrawFn) -> dict:
    experts = draw(st.integers(2, 24))
    top_k = draw(st.integers(1, min(6, experts)))
    tokens = draw(st.integers(1, 9))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    return {
        "experts": experts,
        "top_k": top_k,
        "tokens": tokens,
        "voters": draw(st.integers(1, tokens)),
        "budget": draw(st.integers(top_k, experts)),
        "logits": torch.randn(tokens, experts, generator=generator) * draw(st.sampled_from([0.1, 1.0, 4.0])),
        "bias": torch.randn(experts, generator=generator) * draw(st.sampled_from([0.0, 0.3])),
        "routing": Routing(
            draw(st.sampled_from(["softmax", "sigmoid"])), draw(st.booleans()), draw(st.sampled_from([1.0, 2.5]))
        ),
    }


def routed(case: dict) -> tuple:
    """What the layer's own router would choose."""
    routing = case["routing"]
    scores = routing.scores(case["logits"])
    ids = torch.topk(scores + case["bias"], case["top_k"], dim=-1).indices
    weights = scores.gather(1, ids)
    if routing.renormalize:
        weights = weights / weights.sum(-1, keepdim=True)
    return weights * routing.scale, ids.to(torch.int32)


def budgeted(case: dict, mode: str = "reroute", budget: int | None = None) -> tuple:
    weights, ids = routed(case)
    votes = chosen_weight(weights, ids, torch.tensor(case["voters"]), case["experts"])
    keep = kept_experts(votes, torch.tensor(case["budget"] if budget is None else budget))
    if mode == "drop":
        return *drop(weights, ids, keep, votes), keep
    return *reroute(weights, ids, case["logits"], case["bias"], keep, case["routing"]), keep


def as_mixtures(weights: torch.Tensor, ids: torch.Tensor) -> list[dict[int, float]]:
    return [dict(zip(row.tolist(), w.tolist(), strict=True)) for row, w in zip(ids, weights, strict=True)]


def reference_kept(case: dict) -> tuple[list[dict[int, float]], set[int]]:
    routing = case["routing"]
    every = set(range(case["experts"]))
    own = [
        reference.mixture(
            row, case["bias"].tolist(), every, case["top_k"], routing.scoring, routing.renormalize, routing.scale
        )
        for row in case["logits"].tolist()
    ]
    return own, reference.kept(own, case["voters"], case["budget"], case["experts"])


def near(found: dict[int, float], wanted: dict[int, float]) -> bool:
    return found.keys() == wanted.keys() and all(abs(found[key] - wanted[key]) < 1e-4 for key in wanted)


@given(cases())
@settings(deadline=None, max_examples=150)
def test_rerouting_chooses_what_the_reference_chooses(case: dict) -> None:
    weights, ids, keep = budgeted(case)
    _, allowed = reference_kept(case)
    assert set(keep.nonzero().flatten().tolist()) == allowed
    routing = case["routing"]
    for found, row in zip(as_mixtures(weights, ids), case["logits"].tolist(), strict=True):
        wanted = reference.mixture(
            row, case["bias"].tolist(), allowed, case["top_k"], routing.scoring, routing.renormalize, routing.scale
        )
        assert near(found, wanted)


@given(cases())
@settings(deadline=None, max_examples=150)
def test_dropping_keeps_the_weights_of_what_stays_and_nothing_else(case: dict) -> None:
    weights, ids, _ = budgeted(case, "drop")
    own, allowed = reference_kept(case)
    for found, token in zip(as_mixtures(weights, ids), own, strict=True):
        assert len(found) == case["top_k"], "kernels need an expert in every place, and different ones"
        assert found.keys() <= allowed
        assert near(
            {expert: weight for expert, weight in found.items() if weight},
            {expert: weight for expert, weight in token.items() if expert in allowed},
        )


@given(cases(), st.sampled_from(["reroute", "drop"]))
@settings(deadline=None, max_examples=150)
def test_nobody_reads_more_than_the_budget_padding_included(case: dict, mode: str) -> None:
    _, ids, _ = budgeted(case, mode)
    assert len(set(ids.flatten().tolist())) <= case["budget"]
    assert distinct(ids, torch.tensor(case["tokens"]), case["experts"]) == len(set(ids.flatten().tolist()))


@given(cases(), st.sampled_from(["reroute", "drop"]))
@settings(deadline=None, max_examples=100)
def test_a_budget_that_the_step_does_not_exceed_changes_nothing(case: dict, mode: str) -> None:
    weights, ids = routed(case)
    union = len(set(ids[: case["voters"]].flatten().tolist()))
    new_weights, new_ids, _ = budgeted(case, mode, budget=max(union, case["top_k"]))
    real = slice(0, case["voters"])
    assert torch.equal(new_ids[real], ids[real])
    assert torch.equal(new_weights[real], weights[real])


@given(cases())
@settings(deadline=None, max_examples=50)
def test_padding_has_no_vote(case: dict) -> None:
    *_, keep = budgeted(case)
    other = case | {"logits": case["logits"].clone()}
    other["logits"][case["voters"] :] = torch.randn(case["tokens"] - case["voters"], case["experts"]) * 5
    *_, keep_other = budgeted(other)
    assert torch.equal(keep, keep_other)


@pytest.mark.parametrize("mode", ["reroute", "drop"])
def test_rows_that_the_engine_marked_as_padding_are_left_alone(mode: str) -> None:
    case = {
        "experts": 8, "top_k": 2, "tokens": 3, "voters": 3, "budget": 2, "logits": torch.randn(3, 8),
        "routing": Routing("softmax", renormalize=True), "bias": torch.zeros(8),
    }  # fmt: skip
    weights, ids = routed(case)
    ids[2], weights[2] = -1, 0.0
    votes = chosen_weight(weights, ids, torch.tensor(3), 8)
    assert set(votes.nonzero().flatten().tolist()) == set(ids[:2].flatten().tolist())
    keep = kept_experts(votes, torch.tensor(2))
    if mode == "drop":
        new_weights, new_ids = drop(weights, ids, keep, votes)
    else:
        new_weights, new_ids = reroute(weights, ids, case["logits"], None, keep, case["routing"])
    assert new_ids[2].tolist() == [-1, -1]
    assert new_weights[2].tolist() == [0.0, 0.0]


def test_of_experts_with_equal_votes_exactly_the_budget_stays() -> None:
    keep = kept_experts(torch.ones(10), torch.tensor(4))
    assert keep.nonzero().flatten().tolist() == [0, 1, 2, 3]


def test_a_weight_that_rounds_to_nothing_is_still_a_choice() -> None:
    votes = chosen_weight(torch.tensor([[1.0, 0.0]]), torch.tensor([[3, 5]]), torch.tensor(1), 8)
    assert votes.nonzero().flatten().tolist() == [3, 5]
