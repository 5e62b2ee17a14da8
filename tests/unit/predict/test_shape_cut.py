from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from outrider.cli import app
from outrider.predict.errors import PredictError
from outrider.predict.shape_cut import cut_config, drafter_config
from outrider.predict.traffic import machine_of
from outrider.preflight.facts.shape import shape_of
from outrider.preflight.shapes import reference
from outrider.stack import find_stack, load_stack

if TYPE_CHECKING:
    from pathlib import Path

KIMI = reference("moonshotai/Kimi-K2.5")
assert KIMI is not None
CONFIG = KIMI.config


def test_a_cut_keeps_every_width() -> None:
    whole, cut = shape_of(CONFIG), shape_of(cut_config(CONFIG, 8))
    assert cut.layers == 8
    for name in ("hidden", "heads", "vocabulary", "intermediate", "mla", "experts"):
        assert getattr(cut, name) == getattr(whole, name)
    assert cut.quantization is not None
    assert whole.quantization is not None
    before, after = (q["config_groups"]["group_0"]["weights"] for q in (whole.quantization, cut.quantization))
    assert after.items() >= before.items()
    assert cut.architecture == "DeepseekV3ForCausalLM"


@pytest.mark.parametrize("layers", [1, 62])
def test_a_cut_without_experts_or_beyond_the_target_is_refused(layers: int) -> None:
    with pytest.raises(PredictError, match="2 to 61"):
        cut_config(CONFIG, layers)


def test_the_written_stack_loads_and_its_shape_is_read_from_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = CliRunner().invoke(app, ["shape", "kimi-k2.5-rtx6000x8", "--layers", "4", "--to", str(tmp_path)])
    assert result.exit_code == 0, result.output
    stack = load_stack(tmp_path / "kimi-k2.5-rtx6000x8-shape4.yaml")
    config = json.loads((tmp_path / stack.target.model / "config.json").read_text(encoding="utf-8"))
    assert machine_of(stack, config).moe_layers == 3
    monkeypatch.setenv("OUTRIDER_MODELS", str(tmp_path))
    machine = machine_of(stack)
    assert (machine.layers, machine.dummy) == (4, True)
    # Three layers of 384 experts, the dense rest and two vocabularies.
    assert stack.target.weight_gb == pytest.approx(3 * 384 * 24.77e-3 + 6.3, rel=0.05)
    spec = stack.variants["static3"].speculation
    assert spec is not None
    assert spec.drafter is not None
    head = json.loads((tmp_path / spec.drafter.model / "config.json").read_text(encoding="utf-8"))
    assert head == drafter_config(shape_of(config))
    assert (head["hidden_size"], head["max_position_embeddings"]) == (7168, 4096)


def test_a_shape_for_long_contexts_has_room_in_target_and_head_and_keeps_prompts(tmp_path: Path) -> None:
    arguments = ["shape", "kimi-k2.5-rtx6000x8", "--layers", "4", "--to", str(tmp_path), "--name", "long"]
    result = CliRunner().invoke(app, [*arguments, "--max-model-len", "20480", "--flag", "enable-prefix-caching"])
    assert result.exit_code == 0, result.output
    stack = load_stack(tmp_path / "long.yaml")
    assert stack.target.max_model_len == 20480
    assert stack.engine.flags["enable-prefix-caching"] is True
    head = json.loads((tmp_path / f"{stack.target.model}-eagle3" / "config.json").read_text(encoding="utf-8"))
    assert head["max_position_embeddings"] == 20480


def test_a_shape_can_be_served_over_the_api_and_on_several_gpus(tmp_path: Path) -> None:
    arguments = ["shape", "kimi-k2.5-rtx6000x8", "--layers", "4", "--to", str(tmp_path), "--name", "cut", "--gpus", "2"]
    arguments += ["--env", "NCCL_P2P_DISABLE=1", "--flag", "disable-custom-all-reduce"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    stack = load_stack(tmp_path / "cut.yaml")
    assert (tmp_path / stack.target.model / "tokenizer.json").is_file()
    assert (stack.parallel.tensor, stack.node.interconnect) == (2, "pcie5")
    assert stack.env["NCCL_P2P_DISABLE"] == "1"
    assert stack.engine.flags["disable-custom-all-reduce"] is True
    assert "skip-tokenizer-init" not in stack.engine.flags


def test_one_gpus_part_of_eight_is_what_tensor_parallelism_would_give_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["shape", "kimi-k2.5-rtx6000x8", "--layers", "61", "--rank-of", "8", "--to", str(tmp_path)]
    result = CliRunner().invoke(app, [*arguments, "--name", "part"])
    assert result.exit_code == 0, result.output
    monkeypatch.setenv("OUTRIDER_MODELS", str(tmp_path))
    stack = load_stack(tmp_path / "part.yaml")
    part, whole = machine_of(stack), machine_of(find_stack("kimi-k2.5-rtx6000x8"))
    assert (part.ranks, whole.ranks) == (1, 8)
    for name in ("layers", "moe_layers", "per_token", "expert_bytes", "dense_bytes", "routed_flops", "kv_bytes"):
        assert getattr(part, name) == getattr(whole, name), name
    spec = stack.variants["eagle3-auto"].speculation
    assert spec is not None
    assert spec.drafter is not None
    head = json.loads((tmp_path / spec.drafter.model / "config.json").read_text(encoding="utf-8"))
    assert (head["num_attention_heads"], head["intermediate_size"], head["draft_vocab_size"]) == (7, 2304, 4000)


def test_widths_that_so_many_gpus_cannot_share_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PredictError, match="7 GPUs cannot share") as caught:
        cut_config(CONFIG, 61, 7)
    assert "num_attention_heads 64" in str(caught.value)
    arguments = ["shape", "kimi-k2.5-rtx6000x8", "--layers", "61", "--rank-of", "8", "--gpus", "2"]
    result = CliRunner().invoke(app, [*arguments, "--to", str(tmp_path)])
    assert isinstance(result.exception, PredictError)
    assert "not on 2" in str(result.exception)


def test_a_part_of_a_target_with_grouped_heads_keeps_their_width() -> None:
    config = {
        "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_size": 2048,
        "num_hidden_layers": 4, "num_attention_heads": 32, "num_key_value_heads": 4, "vocab_size": 4096,
        "intermediate_size": 6144, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 768,
    }  # fmt: skip
    part = shape_of(cut_config(config, 4, 8))
    assert (part.heads, part.kv_heads, part.head_dim) == (4, 1, 64)


def test_a_variable_without_a_value_is_refused(tmp_path: Path) -> None:
    arguments = ["shape", "kimi-k2.5-rtx6000x8", "--layers", "4", "--to", str(tmp_path), "--env", "NCCL_P2P_DISABLE"]
    result = CliRunner().invoke(app, arguments)
    assert isinstance(result.exception, PredictError)
    assert "write --env NAME=VALUE" in str(result.exception)
    assert not list(tmp_path.iterdir())
