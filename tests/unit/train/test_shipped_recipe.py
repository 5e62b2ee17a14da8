from __future__ import annotations

from pathlib import Path

from outrider.stack import find_stack, load_stack
from outrider.train.corpus import generate
from outrider.train.recipe import recipe_of

MODELS = Path(__file__).parents[3] / "models"


def test_the_shipped_heads_recipe_is_for_the_embedded_target() -> None:
    made = load_stack(MODELS / "smollm2-135m-eagle3" / "smollm2-h200.yaml")
    embedded = find_stack("smollm2-cpu")
    assert made.target == embedded.target
    ours, theirs = recipe_of(made), recipe_of(embedded)
    for field in ("aux_layers", "draft_vocab_size", "k", "floor", "temperatures"):
        assert getattr(ours, field) == getattr(theirs, field), field


def test_the_corpus_is_large_enough_for_it() -> None:
    recipe = recipe_of(load_stack(MODELS / "smollm2-135m-eagle3" / "smollm2-h200.yaml"))
    assert len(generate(recipe.samples, seed=recipe.seed)) == recipe.samples
    assert len(generate(recipe.check_samples, split="check", seed=recipe.seed)) == recipe.check_samples


def test_layers_are_distinct_and_inside_the_target() -> None:
    layers = recipe_of(find_stack("smollm2-cpu")).aux_layers
    assert len(set(layers)) == len(layers)
    assert all(0 <= layer < 30 for layer in layers)
