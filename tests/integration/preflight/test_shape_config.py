"""What `outrider shape` writes, as the engine itself reads it."""

from __future__ import annotations

import pytest

from outrider.predict.shape_cut import cut_config
from outrider.preflight.shapes import reference

KIMI = reference("moonshotai/Kimi-K2.5")
assert KIMI is not None
CUT = cut_config(KIMI.config, 8)


def test_the_engine_finds_a_scheme_for_the_experts_and_none_for_attention() -> None:
    compressed = pytest.importorskip("vllm.model_executor.layers.quantization.compressed_tensors.compressed_tensors")
    config = compressed.CompressedTensorsConfig.from_config(dict(CUT["quantization_config"]))
    weights = config.target_scheme_map["Linear"]["weights"]
    assert (weights.num_bits, weights.group_size, weights.strategy) == (4, 32, "group")
    assert any("self_attn" in name for name in config.ignore)


def test_the_router_keeps_its_one_group() -> None:
    deepseek = pytest.importorskip("transformers").DeepseekV3Config(**CUT)
    assert (deepseek.n_group, deepseek.topk_group) == (1, 1)
    assert deepseek.num_experts_per_tok == 8
