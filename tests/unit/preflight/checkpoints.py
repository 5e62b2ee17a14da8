"""Small checkpoints for tests: targets and drafters of every kind, right in all things unless told otherwise.

A checkpoint is a `Draft`: config, tensors and further files in memory, so that a test can spoil one of them and
write the rest unchanged.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors.numpy import save_file

from outrider.stack import stack_from_text

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from outrider.stack import Stack

HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM, WIDE, VOCABULARY = 32, 8, 4, 2, 8, 48, 128
REDUCED = 40
MLA = {"q_lora_rank": 12, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8}


@dataclass
class Draft:
    """A checkpoint in memory."""

    config: dict[str, Any]
    tensors: dict[str, np.ndarray]
    tokenizer: dict[str, Any] | None = None
    tokenizer_config: dict[str, Any] = field(default_factory=dict)
    generation_config: dict[str, Any] | None = None
    chat_template: bool = False

    def write(self, directory: Path, shards: int = 1) -> Path:
        """Write it; several shards come with an index."""
        directory.mkdir(parents=True, exist_ok=True)
        _dump(directory / "config.json", self.config)
        if self.tokenizer is not None:
            _dump(directory / "tokenizer.json", self.tokenizer)
            _dump(directory / "tokenizer_config.json", self.tokenizer_config)
        if self.generation_config is not None:
            _dump(directory / "generation_config.json", self.generation_config)
        if self.chat_template:
            (directory / "chat_template.jinja").write_text("{{ messages }}", encoding="utf-8")
        if shards == 1:
            save_file(self.tensors, directory / "model.safetensors")
            return directory
        weight_map = {}
        for index in range(shards):
            name = f"model-{index + 1:05}-of-{shards:05}.safetensors"
            part = {key: self.tensors[key] for key in sorted(self.tensors)[index::shards]}
            save_file(part, directory / name)
            weight_map |= dict.fromkeys(part, name)
        _dump(directory / "model.safetensors.index.json", {"metadata": {}, "weight_map": weight_map})
        return directory


def _dump(path: Path, data: object) -> None:
    path.write_text(json.dumps(data), encoding="utf-8")


def zeros(*shape: int, dtype: type = np.float16) -> np.ndarray:
    return np.zeros(shape, dtype=dtype)


def tokenizer(vocabulary: int = VOCABULARY) -> dict[str, Any]:
    tokens = {f"t{i}": i for i in range(vocabulary)}
    return {
        "model": {"type": "BPE", "vocab": tokens, "merges": [["t", "1"], ["t", "2"]]},
        "added_tokens": [{"id": vocabulary - 1, "content": f"t{vocabulary - 1}", "special": True}],
    }


def _llama(hidden: int = HIDDEN, layers: int = LAYERS) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "intermediate_size": WIDE,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 4096,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "torch_dtype": "float16",
        "eos_token_id": VOCABULARY - 1,
    }


def _decoder_layer(prefix: str, inputs: int, hidden: int = HIDDEN) -> dict[str, np.ndarray]:
    return {
        f"{prefix}.self_attn.q_proj.weight": zeros(HEADS * HEAD_DIM, inputs),
        f"{prefix}.self_attn.k_proj.weight": zeros(KV_HEADS * HEAD_DIM, inputs),
        f"{prefix}.self_attn.v_proj.weight": zeros(KV_HEADS * HEAD_DIM, inputs),
        f"{prefix}.self_attn.o_proj.weight": zeros(hidden, HEADS * HEAD_DIM),
        f"{prefix}.input_layernorm.weight": zeros(hidden),
        f"{prefix}.post_attention_layernorm.weight": zeros(hidden),
        **_mlp(prefix, hidden),
    }


def _mlp(prefix: str, hidden: int) -> dict[str, np.ndarray]:
    return {
        f"{prefix}.mlp.gate_proj.weight": zeros(WIDE, hidden),
        f"{prefix}.mlp.up_proj.weight": zeros(WIDE, hidden),
        f"{prefix}.mlp.down_proj.weight": zeros(hidden, WIDE),
    }


def _mla_layer(prefix: str, inputs: int) -> dict[str, np.ndarray]:
    query, rank, latent = 12 * HEADS, MLA["q_lora_rank"], MLA["kv_lora_rank"]
    return {
        f"{prefix}.self_attn.q_a_proj.weight": zeros(rank, inputs),
        f"{prefix}.self_attn.q_a_layernorm.weight": zeros(rank),
        f"{prefix}.self_attn.q_b_proj.weight": zeros(query, rank),
        f"{prefix}.self_attn.kv_a_proj_with_mqa.weight": zeros(latent + 4, inputs),
        f"{prefix}.self_attn.kv_a_layernorm.weight": zeros(latent),
        f"{prefix}.self_attn.kv_b_proj.weight": zeros(16 * HEADS, latent),
        f"{prefix}.self_attn.o_proj.weight": zeros(HIDDEN, 8 * HEADS),
        f"{prefix}.input_layernorm.weight": zeros(HIDDEN),
        f"{prefix}.post_attention_layernorm.weight": zeros(HIDDEN),
        **_mlp(prefix, HIDDEN),
    }


def _ends(prefix: str = "model.") -> dict[str, np.ndarray]:
    return {
        f"{prefix}embed_tokens.weight": zeros(VOCABULARY, HIDDEN),
        f"{prefix}norm.weight": zeros(HIDDEN),
        "lm_head.weight": zeros(VOCABULARY, HIDDEN),
    }


def llama_target() -> Draft:
    tensors = _ends()
    for index in range(LAYERS):
        tensors |= _decoder_layer(f"model.layers.{index}", HIDDEN)
    return _target(_llama(), tensors)


def mla_target(*, nested: bool = True) -> Draft:
    """DeepSeek-type text model, inside a multimodal config unless `nested` is False."""
    text = _llama() | MLA | {"model_type": "deepseek_v3", "num_key_value_heads": HEADS}
    del text["head_dim"]
    tensors = _ends()
    for index in range(LAYERS):
        tensors |= _mla_layer(f"model.layers.{index}", HIDDEN)
    if not nested:
        return _target(text | {"architectures": ["DeepseekV3ForCausalLM"]}, tensors)
    del text["architectures"]
    config = {
        "architectures": ["KimiK25ForConditionalGeneration"],
        "model_type": "kimi_k25",
        "eos_token_id": VOCABULARY - 1,
        "text_config": text,
    }
    tensors = {f"language_model.{name}": tensor for name, tensor in tensors.items()}
    tensors["vision_tower.encoder.layers.20.weight"] = zeros(4)
    return _target(config, tensors)


def mtp_target(declared: int = 1, present: int = 1) -> Draft:
    draft = mla_target(nested=False)
    draft.config["num_nextn_predict_layers"] = declared
    for index in range(present):
        draft.tensors |= _mla_layer(f"model.layers.{LAYERS + index}", HIDDEN)
    return draft


def _target(config: dict[str, Any], tensors: dict[str, np.ndarray]) -> Draft:
    return Draft(
        config,
        tensors,
        tokenizer=tokenizer(),
        tokenizer_config={"eos_token": f"t{VOCABULARY - 1}"},
        generation_config={"eos_token_id": VOCABULARY - 1},
        chat_template=True,
    )


def _vocabulary_tables(reduced: int = REDUCED) -> dict[str, np.ndarray]:
    ids = np.arange(reduced, dtype=np.int64) * 3
    marked = np.zeros(VOCABULARY, dtype=np.bool_)
    marked[ids] = True
    return {"d2t": ids - np.arange(reduced), "t2d": marked}


def llama_eagle3() -> Draft:
    """Plain form: `LlamaForCausalLMEagle3`, midlayer, reduced vocabulary, layer ids at the top level."""
    config = _llama(layers=1) | {
        "architectures": ["LlamaForCausalLMEagle3"],
        "draft_vocab_size": REDUCED,
        "eagle_aux_hidden_state_layer_ids": [2, 4, 5],
    }
    tensors = {
        "fc.weight": zeros(HIDDEN, 3 * HIDDEN),
        "norm.weight": zeros(HIDDEN),
        "midlayer.hidden_norm.weight": zeros(HIDDEN),
        "lm_head.weight": zeros(REDUCED, HIDDEN),
        **_decoder_layer("midlayer", 2 * HIDDEN),
        **_vocabulary_tables(),
    }
    return Draft(config, tensors)


def speculators_eagle3() -> Draft:
    """The form that the speculators library exports: layer config nested, layers named `layers.0`."""
    plain = llama_eagle3()
    layer = _llama(layers=1)
    config = {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3",
        "draft_vocab_size": REDUCED,
        "eagle_aux_hidden_state_layer_ids": [2, 4, 5],
        "norm_before_residual": True,
        "speculators_config": {
            "proposal_methods": [{"speculative_tokens": 3}],
            "verifier": {"name_or_path": "acme/tiny-target"},
        },
        "transformer_layer_config": layer,
    }
    tensors = {name.replace("midlayer", "layers.0"): tensor for name, tensor in plain.tensors.items()}
    return Draft(config, tensors)


def mla_eagle3() -> Draft:
    """MLA head, full vocabulary, ids in both places that some runner reads."""
    config = _llama(layers=1) | MLA | {
        "architectures": ["Eagle3DeepseekV2ForCausalLM"],
        "model_type": "deepseek_v3",
        "num_key_value_heads": HEADS,
        "eagle_aux_hidden_state_layer_ids": [2, 4, 5],
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": [2, 4, 5]},
    }  # fmt: skip
    del config["head_dim"]
    tensors = {
        "fc.weight": zeros(HIDDEN, 3 * HIDDEN),
        "norm.weight": zeros(HIDDEN),
        "layers.0.hidden_norm.weight": zeros(HIDDEN),
        "embed_tokens.weight": zeros(VOCABULARY, HIDDEN),
        "lm_head.weight": zeros(VOCABULARY, HIDDEN),
        **_mla_layer("layers.0", 2 * HIDDEN),
    }
    return Draft(config, tensors)


def dflash() -> Draft:
    """Block drafter of Qwen3 type with three target layers."""
    config = _llama(layers=2) | {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "block_size": 8,
        "dflash_config": {"mask_token_id": 5, "target_layer_ids": [1, 3, 5]},
    }
    tensors = {
        "fc.weight": zeros(HIDDEN, 3 * HIDDEN),
        "norm.weight": zeros(HIDDEN),
        "hidden_norm.weight": zeros(HIDDEN),
    }
    for index in range(2):
        layer = f"layers.{index}"
        tensors |= _decoder_layer(layer, HIDDEN)
        tensors |= {f"{layer}.self_attn.{part}_norm.weight": zeros(HEAD_DIM) for part in "qk"}
    return Draft(config, tensors)


def draft_model() -> Draft:
    """An independent small model with the target's tokenizer."""
    tensors = _ends()
    for index in range(2):
        tensors |= _decoder_layer(f"model.layers.{index}", HIDDEN)
    return _target(_llama(layers=2), tensors)


STACK = """
schema: 1
name: tiny
title: a tiny stack for tests
target:
  model: acme/tiny-target
  revision: "{commit}"
  served_name: tiny-target
  license: Apache-2.0
  dtype: auto
  max_model_len: {length}
  weight_gb: 0.0001
engine: {{name: vllm, version: {version}, build: {build}, flags: {flags}}}
node:
  description: tests
  accelerator: {accelerator}
  gpus: {gpus}
  vram_gib: 16
  interconnect: {interconnect}
  env: {env}
parallel: {parallel}
memory: {memory}
variants:
  baseline: {{}}
  drafted: {drafted}
"""


def stack(
    speculation: dict[str, Any] | None = None,
    *,
    build: str = "cuda",
    version: str = "0.33.0",
    flags: dict[str, Any] | None = None,
    env: dict[str, str] | None = None,
    parallel: dict[str, Any] | None = None,
    memory: dict[str, Any] | None = None,
    length: int = 2048,
    accelerator: str = "H100",
    gpus: int = 1,
    interconnect: str = "none",
    drafted_flags: dict[str, Any] | None = None,
) -> Stack:
    """A stack whose variant `drafted` speculates as told."""
    drafted: dict[str, Any] = {"flags": drafted_flags or {}}
    if speculation is not None:
        drafted["speculation"] = speculation
    default = {"gpu_utilization": 0.9, "max_num_seqs": 8} if build == "cuda" else {"cpu_kv_gib": 1, "max_num_seqs": 8}
    return stack_from_text(
        STACK.format(
            commit="0" * 40,
            build=build,
            version=version,
            length=length,
            accelerator=accelerator,
            gpus=gpus,
            interconnect=interconnect,
            flags=json.dumps(flags or {}),
            env=json.dumps(env or {}),
            parallel=json.dumps(parallel or {}),
            memory=json.dumps(default | (memory or {})),
            drafted=json.dumps(drafted),
        )
    )


def drafted(method: str, k: int = 3, **options: Any) -> dict[str, Any]:
    """The `speculation` of a variant with a pinned drafter."""
    speculation: dict[str, Any] = {"method": method, "k": k, "options": options}
    if method not in {"ngram", "ngram_gpu", "suffix", "mtp"}:
        speculation["drafter"] = {"model": "acme/tiny-drafter", "revision": "1" * 40}
    return speculation


def codes(findings: Iterable[Any], *, notes: bool = False) -> set[str]:
    """Codes of errors and advisories, of notes too if asked."""
    return {finding.code for finding in findings if notes or finding.severity != "info"}
