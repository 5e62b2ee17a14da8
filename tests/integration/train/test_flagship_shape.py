"""The flagship's training section on a tiny model of its configuration's shape: multimodal, MLA, nested names."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from safetensors.torch import save_file
from tests.integration.train.tiny_target import make_tokenizer

from outrider.stack import find_stack
from outrider.train.dry_run import dry_run
from outrider.train.errors import TrainError
from outrider.train.recipe import recipe_of
from outrider.train.session import Session
from outrider.train.tensors import read_header

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.train

HIDDEN = 64
VOCAB = 400


def _make_kimi(directory: Path) -> None:
    """Kimi-K2.5's config.json with small numbers, and the three tensors that a head takes over."""
    tokenizer = make_tokenizer(directory)
    text: dict[str, Any] = {
        "model_type": "kimi_k2", "architectures": ["DeepseekV3ForCausalLM"], "hidden_size": HIDDEN,
        "num_hidden_layers": 61, "num_attention_heads": 8, "num_key_value_heads": 8, "intermediate_size": 128,
        "moe_intermediate_size": 32, "n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 2,
        "first_k_dense_replace": 1, "q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 8, "v_head_dim": 16, "vocab_size": VOCAB, "max_position_embeddings": 9000,
        "rms_norm_eps": 1e-5, "rope_theta": 50000.0, "hidden_act": "silu", "num_nextn_predict_layers": 0,
        "tie_word_embeddings": False,
    }  # fmt: skip
    config = {
        "architectures": ["KimiK25ForConditionalGeneration"],
        "model_type": "kimi_k25",
        "text_config": text,
        "vision_config": {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2},
        "eos_token_id": tokenizer.eos_token_id,
        "tie_word_embeddings": False,
    }
    (directory / "config.json").write_text(json.dumps(config), encoding="utf-8")
    shard = "model-00001-of-000001.safetensors"
    tensors = {
        "language_model.model.embed_tokens.weight": torch.zeros(VOCAB, HIDDEN, dtype=torch.bfloat16),
        "language_model.model.norm.weight": torch.ones(HIDDEN, dtype=torch.bfloat16),
        "language_model.lm_head.weight": torch.zeros(VOCAB, HIDDEN, dtype=torch.bfloat16),
    }
    save_file(tensors, directory / shard)
    index = {"metadata": {}, "weight_map": dict.fromkeys(tensors, shard)}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")


@pytest.fixture
def session(tmp_path: Path, train_python: str, monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.setenv("OUTRIDER_TRAIN_PYTHON", train_python)
    model = tmp_path / "kimi"
    model.mkdir()
    _make_kimi(model)
    stack = find_stack("kimi-k2.5-rtx6000x8")
    shipped = recipe_of(stack)
    assert shipped.draft_config is not None
    # The geometry as shipped, its widths scaled down with the target's.
    small = {"hidden_size": HIDDEN, "intermediate_size": 128, "vocab_size": VOCAB, "head_dim": 16,
             "num_attention_heads": 8, "num_key_value_heads": 2}  # fmt: skip
    recipe = shipped.with_flags(
        draft_config={**shipped.draft_config, **small}, draft_vocab_size=128, mask_token_id=VOCAB - 1
    )
    return Session(stack=stack, recipe=recipe, directory=tmp_path / "run", model_dir=model, port=1)


@pytest.mark.timeout(300)
def test_the_flagships_recipe_builds_a_head_on_a_target_of_its_shape(session: Session) -> None:
    built = dry_run(session)
    head = session.stage_dir("dry-run") / "head"
    config = json.loads((head / "config.json").read_text(encoding="utf-8"))
    decoder = config["transformer_layer_config"]
    assert config["eagle_aux_hidden_state_layer_ids"] == [2, 30, 58]
    assert (decoder["model_type"], decoder["num_key_value_heads"], decoder["head_dim"]) == ("llama", 2, 16)
    # The limit of the nested configuration, where a converter would fall back to 4096.
    assert decoder["max_position_embeddings"] == 9000
    assert config["speculators_config"]["verifier"]["name_or_path"] == "moonshotai/Kimi-K2.5"
    header = read_header(head / "model.safetensors")
    assert header["fc.weight"]["shape"] == [HIDDEN, 3 * HIDDEN]
    assert built["parameters"] > 0


def test_layers_that_the_target_does_not_have_are_refused_before_anything_runs(session: Session) -> None:
    wrong = replace(session, recipe=session.recipe.with_flags(aux_layers=(2, 30, 61)))
    with pytest.raises(TrainError, match="do not fit a target of 61 layers"):
        dry_run(wrong)
