from __future__ import annotations

import json
from pathlib import Path

from outrider.model_store import manifest
from outrider.stack import find_stack, load_stack
from outrider.train.recipe import recipe_of
from outrider.train.tensors import read_header

HEAD = Path(__file__).parents[3] / "models" / "smollm2-135m-eagle3"


def test_every_file_is_as_listed() -> None:
    assert manifest.check(HEAD) == []


def test_it_is_small_and_bf16_and_lends_the_embedding() -> None:
    weights = HEAD / "model.safetensors"
    assert weights.stat().st_size <= 25_000_000
    header = read_header(weights)
    assert {t["dtype"] for name, t in header.items() if name not in {"d2t", "t2d"}} == {"BF16"}
    assert not [name for name in header if "embed_tokens" in name]
    assert header["d2t"]["shape"] == [8192]


def test_its_configuration_names_the_layers_and_the_targets_limit() -> None:
    config = json.loads((HEAD / "config.json").read_text(encoding="utf-8"))
    assert config["eagle_aux_hidden_state_layer_ids"] == [2, 15, 27]
    assert config["draft_vocab_size"] == 8192
    assert config["transformer_layer_config"]["max_position_embeddings"] == 8192
    assert config["speculators_config"]["verifier"]["name_or_path"] == "HuggingFaceTB/SmolLM2-135M-Instruct"


def test_the_card_reports_acceptance_by_category() -> None:
    card = (HEAD / "README.md").read_text(encoding="utf-8")
    rows = [line.split("|") for line in card.splitlines() if line.startswith("| chat |")]
    assert rows
    assert float(rows[0][3]) >= 2.0


def test_what_the_stack_says_of_it_is_what_was_measured() -> None:
    speculation = find_stack("smollm2-cpu").variant("eagle3").speculation
    assert speculation is not None
    assert speculation.drafter is not None
    stages = json.loads((HEAD / "training.json").read_text(encoding="utf-8"))
    measured = stages["check"]["counts"]["length_by_category"]
    assert speculation.drafter.reported_al == {c: round(measured[c], 2) for c in speculation.drafter.reported_al}
    assert speculation.drafter.model == "models/smollm2-135m-eagle3"


def test_it_was_trained_with_the_recipe_that_lies_beside_it() -> None:
    recipe = recipe_of(load_stack(HEAD / "smollm2-h200.yaml")).as_dict()
    stages = json.loads((HEAD / "training.json").read_text(encoding="utf-8"))
    for stage in stages.values():
        for name, value in stage["settings"].items():
            assert json.loads(json.dumps(recipe[name])) == value, f"{stage['stage']}: {name}"
