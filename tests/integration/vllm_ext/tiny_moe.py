"""Tiny mixtures of experts with weights by chance, large enough that routing matters."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import torch
from transformers import DeepseekV3Config, DeepseekV3ForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM

if TYPE_CHECKING:
    from pathlib import Path

EXPERTS, TOP_K = 16, 4
_SHARED = {
    "vocab_size": 512, "hidden_size": 128, "intermediate_size": 256, "moe_intermediate_size": 64,
    "num_attention_heads": 4, "num_experts_per_tok": TOP_K, "norm_topk_prob": True, "max_position_embeddings": 512,
    "initializer_range": 0.15, "bos_token_id": 510, "eos_token_id": 511,
}  # fmt: skip


def deepseek_v3(directory: Path) -> Path:
    """Sigmoid routing with a correction bias, as in DeepSeek-V3 and Kimi-K2; one group, one dense layer first."""
    torch.manual_seed(0)
    config = DeepseekV3Config(
        **_SHARED, num_hidden_layers=3, num_key_value_heads=4, n_routed_experts=EXPERTS, n_shared_experts=1,
        routed_scaling_factor=2.5, kv_lora_rank=512, q_lora_rank=64, qk_rope_head_dim=64, qk_nope_head_dim=32,
        v_head_dim=32, n_group=1, topk_group=1, first_k_dense_replace=1, num_nextn_predict_layers=0,
    )  # fmt: skip
    model = DeepseekV3ForCausalLM(config).float()
    for layer in model.model.layers[1:]:
        layer.mlp.gate.weight.data.normal_(0, 0.1)
        layer.mlp.gate.e_score_correction_bias.data.normal_(0, 0.1)
    model.save_pretrained(directory)
    # transformers leaves out what its own class takes for granted; the engine reads it.
    file = directory / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"topk_method": "noaux_tc", "scoring_func": "sigmoid"}))
    return directory


def qwen3_moe(directory: Path) -> Path:
    """Softmax routing."""
    torch.manual_seed(0)
    config = Qwen3MoeConfig(**_SHARED, num_hidden_layers=2, num_key_value_heads=2, head_dim=32, num_experts=EXPERTS)
    Qwen3MoeForCausalLM(config).float().save_pretrained(directory)
    return directory
