"""Outrider's own prompt sets: complete, varied, deterministic, and safe against prefix-cache bias."""

from __future__ import annotations

import dataclasses
import itertools

import pytest

from outrider.errors import LoadError
from outrider.load.workloads import is_workload, load_workload, workload_names
from outrider.load.workloads.written import read_set

SHORT = tuple(name for name in workload_names() if not name.startswith(("long-", "random-")))
ALL = (*SHORT, "long-1k", "random-64")


def test_every_promised_workload_exists():
    promised = {
        "chat",
        "code",
        "edit",
        "extraction",
        "reasoning",
        "json",
        "multiturn",
        "long-1k",
        "long-4k",
        "long-16k",
    }
    assert promised <= set(workload_names())


@pytest.mark.parametrize("name", ALL)
def test_a_set_has_at_least_64_distinct_prompts(name):
    workload = load_workload(name)
    assert len(workload) >= 64
    assert len({p.id for p in workload.prompts}) == len(workload)
    assert len({str(p.messages) for p in workload.prompts}) == len(workload)


@pytest.mark.parametrize("name", ALL)
def test_prompts_differ_early_so_that_a_prefix_cache_helps_none(name):
    """Within the first 60 characters: about the 16 tokens of a block, which is what prefix caches share."""
    starts = [p.messages[0]["content"][:60] for p in load_workload(name).prompts]
    assert len(set(starts)) == len(starts)


@pytest.mark.parametrize("name", ALL)
def test_prompts_are_well_formed_chat_requests(name):
    for prompt in load_workload(name).prompts:
        roles = [m["role"] for m in prompt.messages]
        assert roles[-1] == "user"
        assert all(a != b for a, b in itertools.pairwise(roles))
        assert all(m["content"] == m["content"].strip() != "" for m in prompt.messages)
        assert prompt.max_tokens is not None
        assert 32 <= prompt.max_tokens <= 512


@pytest.mark.parametrize("name", ALL)
def test_the_same_seed_gives_the_same_workload(name):
    assert load_workload(name, seed=3) == load_workload(name, seed=3)


@pytest.mark.parametrize("name", SHORT)
def test_another_seed_changes_the_order_but_not_the_digest(name):
    one, other = load_workload(name, seed=1), load_workload(name, seed=2)
    assert [p.id for p in one.prompts] != [p.id for p in other.prompts]
    assert one.digest == other.digest


@pytest.mark.parametrize("name", ALL)
def test_a_smaller_count_is_a_prefix_of_a_larger_one(name):
    assert load_workload(name, seed=5, count=7).prompts == load_workload(name, seed=5).prompts[:7]


def test_a_cut_set_has_another_digest():
    assert load_workload("chat", count=8).digest != load_workload("chat").digest


def test_long_prompts_are_fresh_text_for_every_seed():
    one, other = load_workload("long-1k", seed=1), load_workload("long-1k", seed=2)
    assert not {p.id for p in one.prompts} & {p.id for p in other.prompts}
    assert one.digest != other.digest


@pytest.mark.parametrize(
    ("name", "tokens"), [("long-1k", 1024), ("long-4k", 4096), ("long-16k", 16384), ("long-3k", 3072)]
)
def test_long_prompts_are_as_long_as_their_name_says(name, tokens):
    """1.43 tokens a word holds for this text within 2 % (SmolLM2's tokenizer)."""
    for prompt in load_workload(name, count=4).prompts:
        assert prompt.words * 1.43 == pytest.approx(tokens, rel=0.04)


def test_the_answer_to_a_long_prompt_is_in_its_text_exactly_once():
    for prompt in load_workload("long-4k", count=16).prompts:
        text, question = prompt.messages[0]["content"].rsplit("\n\n", 1)
        subject = question.removeprefix("Question about the text above: what is the code of ").split("?")[0]
        assert text.count(f"code of {subject} is ") == 1


def test_more_long_prompts_than_usual_can_be_drawn():
    assert len({p.messages[0]["content"] for p in load_workload("long-1k", count=200).prompts}) == 200


def test_multiturn_contexts_grow():
    by_turns: dict[str, list[int]] = {}
    for prompt in load_workload("multiturn").prompts:
        by_turns.setdefault(prompt.category, []).append(prompt.words)
    means = [sum(by_turns[k]) / len(by_turns[k]) for k in ("2-turns", "3-turns", "4-turns")]
    assert set(by_turns) == {"2-turns", "3-turns", "4-turns"}
    assert means[1] > 1.4 * means[0]
    assert means[2] > 1.2 * means[1]


def test_no_conversation_is_a_prefix_of_another():
    starts = [p.messages[0]["content"] for p in load_workload("multiturn").prompts]
    assert len(set(starts)) == len(starts)


@pytest.mark.parametrize("name", ["edit", "extraction"])
def test_material_to_repeat_is_long_enough_to_copy_and_short_enough_for_a_small_model(name):
    for prompt in load_workload(name).prompts:
        _, material = prompt.messages[0]["content"].split("\n\n", 1)
        assert 70 <= len(material) <= 600, prompt.id


@pytest.mark.parametrize("name", SHORT)
def test_set_files_have_only_the_documented_keys(name):
    data = read_set(name)
    assert set(data) == {"version", "description", "max_tokens", "topics" if name == "multiturn" else "prompts"}
    for items in data.get("prompts", {}).values():
        for item in items:
            assert isinstance(item, str) or set(item) == {"ask", "text"}, item


def test_workloads_and_prompts_cannot_be_changed():
    workload = load_workload("chat", count=1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        workload.name = "x"
    with pytest.raises(dataclasses.FrozenInstanceError):
        workload.prompts[0].id = "x"


def test_an_unknown_name_is_refused_with_the_nearest_one():
    with pytest.raises(LoadError, match="did you mean 'extraction'"):
        load_workload("extractoin")


@pytest.mark.parametrize("count", [0, -1, 65])
def test_a_set_is_never_padded_with_repeats(count):
    with pytest.raises(LoadError, match="has 64 distinct prompts"):
        load_workload("chat", count=count)


@pytest.mark.parametrize("name", ["long-0k", "long-k", "long-1000k", "long-04k"])
def test_a_senseless_length_is_an_unknown_name(name):
    assert not is_workload(name)
    with pytest.raises(LoadError, match="there is no workload"):
        load_workload(name)


PINNED = {
    "chat": (1, "d68858582e57925d"),
    "code": (1, "3465cd24dc0fb96b"),
    "edit": (1, "17587c4a39314cc1"),
    "extraction": (1, "726541f611be385c"),
    "json": (1, "8eb853f30f9585de"),
    "multiturn": (1, "3faa69c6bfb6cead"),
    "reasoning": (1, "c581546373f48103"),
    "long-1k": (1, "4f5d6dca0919344f"),
    "long-16k": (1, "7b65ff02e55f1557"),
}


@pytest.mark.parametrize("name", PINNED)
def test_a_changed_prompt_needs_a_new_version(name):
    """If this fails, raise `version` in the set's file and pin the new digest: old figures no longer compare."""
    workload = load_workload(name)
    assert (workload.version, workload.digest[:16]) == PINNED[name]


def test_every_listed_set_is_pinned():
    assert set(SHORT) <= set(PINNED)


@pytest.mark.parametrize("name", [*workload_names(), "long-3k", "long-999k"])
def test_a_name_can_be_checked_without_building_its_prompts(name):
    assert is_workload(name)
