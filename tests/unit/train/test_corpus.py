from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.load.workloads import load_workload, workload_names
from outrider.train.corpus import generate, write_jsonl
from outrider.train.corpus.draw import families
from outrider.train.errors import TrainError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def trained() -> set[str]:
    """Every text of the shipped recipe's prompts."""
    return {text for p in generate(14_000) for _role, text in p.messages}


def test_the_same_seed_gives_the_same_prompts() -> None:
    assert generate(500, seed=3) == generate(500, seed=3)


def test_another_seed_gives_other_prompts() -> None:
    assert {p.id for p in generate(300, seed=1)} != {p.id for p in generate(300, seed=2)}


@settings(max_examples=10)
@given(st.integers(1, 200), st.integers(0, 200))
def test_a_smaller_count_is_a_prefix_of_a_larger_one(count: int, more: int) -> None:
    assert generate(count + more)[:count] == generate(count)


def test_enough_distinct_prompts_for_the_shipped_recipe() -> None:
    prompts = generate(14_000)
    assert len({p.id for p in prompts}) == 14_000
    assert len({p.messages for p in prompts}) == 14_000


def test_every_category_has_a_real_share() -> None:
    prompts = generate(4000)
    shares = {c: sum(p.category == c for p in prompts) / 4000 for c in ("chat", "code", "extraction", "reasoning")}
    assert sum(shares.values()) == pytest.approx(1)
    assert min(shares.values()) > 0.08


def test_held_out_families_share_no_template_with_training() -> None:
    held_out = {t for family in families("check").values() for t in family["templates"]}
    trained = {t for family in families("train").values() for t in family["templates"]}
    assert held_out
    assert not held_out & trained


def test_held_out_prompts_are_not_in_the_training_set(trained: set[str]) -> None:
    assert not trained & {text for p in generate(200, split="check") for _role, text in p.messages}


@pytest.mark.parametrize("name", workload_names())
def test_what_campaigns_measure_is_not_trained_on(name: str, trained: set[str]) -> None:
    measured = {m["content"] for prompt in load_workload(name).prompts for m in prompt.messages}
    assert not trained & measured


def test_no_slot_is_left_unfilled() -> None:
    for split in ("train", "check"):
        for prompt in generate(200 if split == "check" else 4000, split=split):
            for _role, text in prompt.messages:
                # Code snippets hold braces of their own; a slot is a brace around one lower-case word.
                assert not re.search(r"\{(material|topic|task|goal|pair|snippet|language|subject)\}", text)


def test_asking_for_more_than_there_is_says_how_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    small = {"only": {"category": "chat", "weight": 1, "templates": ["Why {x}?"], "slots": {"x": ["a", "b", "c"]}}}
    monkeypatch.setattr("outrider.train.corpus.draw.families", lambda _split: small)
    assert {p.messages[0][1] for p in generate(3)} == {"Why a?", "Why b?", "Why c?"}
    with pytest.raises(TrainError, match="cannot give 4 distinct") as caught:
        generate(4)
    assert "yield 3" in caught.value.evidence


def test_rows_are_what_speculators_reads(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    prompts = generate(20)
    write_jsonl(prompts, file)
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert [row["id"] for row in rows] == [p.id for p in prompts]
    assert all(row["messages"][-1]["role"] == "user" for row in rows)
    assert [p.name for p in tmp_path.iterdir()] == ["prompts.jsonl"]
