"""Which cells, in which order."""

from __future__ import annotations

import pytest

from outrider.campaign.plan import CampaignPlan
from outrider.errors import CampaignError, StackError
from outrider.stack import find_stack, list_stacks

CPU, FLAGSHIP = find_stack("smollm2-cpu"), find_stack("kimi-k2.5-rtx6000x8")


def test_side_by_side_every_point_has_all_variants_next_to_each_other() -> None:
    plan = CampaignPlan.for_stack(CPU)
    keys = plan.cells()
    width = len(plan.variants)
    assert len(set(keys)) == len(keys) == width * len(plan.workloads) * len(plan.concurrency) * plan.repeats
    for at in range(0, len(keys), width):
        group = keys[at : at + width]
        assert {k.variant for k in group} == set(plan.variants)
        assert len({(k.workload, k.concurrency, k.repeat) for k in group}) == 1


def test_side_by_side_no_variant_always_goes_first() -> None:
    plan = CampaignPlan.for_stack(CPU)
    firsts = {key.variant for key in plan.cells()[:: len(plan.variants)]}
    assert firsts == set(plan.variants)


def test_one_engine_at_a_time_starts_each_variant_once_and_ends_with_baseline() -> None:
    keys = CampaignPlan.for_stack(FLAGSHIP).cells()
    order = [key.variant for key in keys]
    starts = [v for i, v in enumerate(order) if i == 0 or order[i - 1] != v]
    assert starts == ["baseline", "ngram", "eagle3", "baseline"]
    assert keys[-1].repeat == FLAGSHIP.campaign.repeats
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("name", [stack.stem for stack in list_stacks()])
def test_the_workloads_of_a_shipped_stack_fit_into_it(name: str) -> None:
    assert CampaignPlan.for_stack(find_stack(name)).workloads


@pytest.mark.parametrize(
    ("stack", "workload"),
    [("smollm2-cpu", "long-2k"), ("kimi-shape8-h200", "random-16384"), ("smollm2-cpu", "long-64k")],
)
def test_prompts_that_do_not_fit_are_refused_before_anything_is_served(stack: str, workload: str) -> None:
    with pytest.raises(CampaignError, match="does not fit into stack") as caught:
        CampaignPlan.for_stack(find_stack(stack), workloads=[workload], max_tokens=256)
    assert "max_model_len" in caught.value.next_step
    assert CampaignPlan.for_stack(find_stack(stack), workloads=["random-1500"], max_tokens=256).workloads


def test_baseline_is_always_measured_and_first() -> None:
    assert CampaignPlan.for_stack(CPU, variants=["ngram"]).variants == ("baseline", "ngram")


def test_variants_of_a_point_are_asked_the_same_prompts_and_repeats_others() -> None:
    plan = CampaignPlan.for_stack(CPU)
    seeds = {(k.workload, k.concurrency, k.repeat): set() for k in plan.cells()}
    for key in plan.cells():
        seeds[(key.workload, key.concurrency, key.repeat)].add(plan.prompt_seed(key))
    assert all(len(s) == 1 for s in seeds.values())
    assert len({next(iter(s)) for (w, _, _), s in seeds.items() if w == "edit"}) == len(plan.concurrency) * plan.repeats


def test_every_user_makes_several_rounds() -> None:
    plan = CampaignPlan.for_stack(CPU)
    assert plan.requests_at(1) == CPU.campaign.requests
    assert plan.requests_at(128) == 768


def test_unknown_names_suggest_the_nearest() -> None:
    with pytest.raises(StackError, match="did you mean 'ngram'"):
        CampaignPlan.for_stack(CPU, variants=["ngrams"])
    with pytest.raises(CampaignError, match="did you mean 'edit'"):
        CampaignPlan.for_stack(CPU, workloads=["edits"])
