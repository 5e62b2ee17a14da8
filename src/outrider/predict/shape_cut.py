"""A target's shape cut to a few layers, as configs only: what a step costs can be measured without its checkpoint."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import yaml

from outrider.predict.byte_tokenizer import byte_tokenizer
from outrider.predict.errors import PredictError
from outrider.preflight.facts.shape import ShapeError, shape_of, text_part
from outrider.preflight.memory import tensors_from_shape
from outrider.stack import stack_from_text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from outrider.preflight.facts.shape import Shape
    from outrider.stack import Stack

# Text parts that stand for themselves under this class, so that no remote code and no vision tower is needed.
_PLAIN_CLASSES = {
    "kimi_k2": ("DeepseekV3ForCausalLM", "deepseek_v3"),
    "deepseek_v3": ("DeepseekV3ForCausalLM", "deepseek_v3"),
}
_DRAFT_VOCABULARY = 32_000
# Accepted/drafts by position where answers are synthetic: 47 % of the drafted, as published for the flagship.
_RATES = (0.66, 0.44, 0.31)
MAX_MODEL_LEN = 4096


def cut_config(config: Mapping[str, Any], layers: int, rank_of: int = 1) -> dict[str, Any]:
    """The text part of a config with so many layers, under a class that needs no remote code.

    Args:
        config: the target's `config.json`.
        layers: decoder layers to keep, the dense ones at the beginning among them.
        rank_of: of how many GPUs' tensor parallelism the shape is one GPU's part.

    Raises:
        PredictError: more layers than there are, so few that no layer with experts is left, or widths that so many
            GPUs cannot share.
    """
    try:
        shape = shape_of(config)
    except ShapeError as error:
        raise PredictError("the target's config is not usable", evidence=str(error)) from error
    least = shape.experts.dense_layers + 1 if shape.experts else 1
    if not least <= layers <= shape.layers:
        raise PredictError(
            f"{layers} layers cannot be cut from this target",
            evidence=f"it has {shape.layers}, of which {least - 1} come before the first that counts",
            next_step=f"ask for {least} to {shape.layers}",
        )
    text = dict(text_part(config))
    kind = str(text.get("model_type", ""))
    if kind in _PLAIN_CLASSES:
        architecture, model_type = _PLAIN_CLASSES[kind]
        text |= {"architectures": [architecture], "model_type": model_type}
    else:
        text.setdefault("architectures", config.get("architectures"))
    if shape.quantization and "quantization_config" not in text:
        text["quantization_config"] = dict(shape.quantization)
    if "quantization_config" in text:
        text["quantization_config"] = _whole(text["quantization_config"])
    if text.get("n_group") == 1:
        text["topk_group"] = 1  # left out by some configs, and the class's own default is that of another model
    text.pop("auto_map", None)
    return text | {"num_hidden_layers": layers} | _part(text, shape, rank_of)


def _part(text: Mapping[str, Any], shape: Shape, rank_of: int) -> dict[str, int]:
    """Widths of one GPU of so many.

    Tensor parallelism shares these out; compressed queries and keys, router and hidden states are whole on each GPU.
    """
    if rank_of == 1:
        return {}
    names = ("num_attention_heads", "intermediate_size", "moe_intermediate_size", "vocab_size")
    shared = {name: int(text[name]) for name in names if name in text}
    if bad := [f"{name} {width}" for name, width in shared.items() if width % rank_of]:
        raise PredictError(
            f"{rank_of} GPUs cannot share this target's widths",
            evidence=", ".join(bad),
            next_step="ask for another number",
        )
    part = {name: width // rank_of for name, width in shared.items()}
    part["num_key_value_heads"] = max(shape.kv_heads // rank_of, 1)
    # Where the config leaves it out it follows from heads, of which there are fewer now.
    return part if shape.mla else part | {"head_dim": shape.head_dim}


def _whole(quantization: Mapping[str, Any]) -> dict[str, Any]:
    """The quantisation with what an engine reads without asking whether it is there."""
    groups = {
        name: {"targets": ["Linear"], "input_activations": None, "output_activations": None}
        | {**group, "weights": {"strategy": "group", "dynamic": False} | group["weights"]}
        for name, group in quantization.get("config_groups", {}).items()
    }
    return {**quantization, "config_groups": groups} if groups else dict(quantization)


def drafter_config(shape: Shape, max_model_len: int = MAX_MODEL_LEN, rank_of: int = 1) -> dict[str, Any]:
    """An EAGLE-3 head of one layer for a target of that shape, or one GPU's part of it; dummy weights as well."""
    heads = max(shape.hidden // 128 // rank_of, 1)
    return {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "torch_dtype": "bfloat16",
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_attention_heads": heads,
        "num_key_value_heads": max(heads // 8, 1),
        "head_dim": 128,
        "num_hidden_layers": 1,
        "vocab_size": shape.vocabulary,
        "draft_vocab_size": min(_DRAFT_VOCABULARY // rank_of, shape.vocabulary),
        "max_position_embeddings": max_model_len,
        "eagle_aux_hidden_state_layer_ids": [2, shape.layers // 2, max(shape.layers - 3, 1)],
        "tie_word_embeddings": False,
    }


@dataclass(frozen=True, slots=True)
class Machine:
    """Where a cut shape will run.

    Attributes:
        accelerator: GPU model.
        gpus: all used for tensor parallelism.
        vram_gib: of one of them.
        env: variables of every variant.
        flags: engine flags of every variant; an empty value switches a flag on.
        max_model_len: tokens of the longest sequence.
        rank_of: of how many GPUs' tensor parallelism one GPU's part is served, without the others.
    """

    accelerator: str
    gpus: int
    vram_gib: float
    env: Mapping[str, str] = field(default_factory=dict)
    flags: Mapping[str, str] = field(default_factory=dict)
    max_model_len: int = MAX_MODEL_LEN
    rank_of: int = 1


def cut_stack(stack: Stack, cut: Mapping[str, Any], machine: Machine, *, name: str = "") -> str:
    """A stack that serves the cut shape with dummy weights and synthetic acceptance, as YAML.

    Args:
        stack: whose target was cut.
        cut: its config.
        machine: where it will run.
        name: of the stack; empty for the target's with the number of layers.
    """
    shape, ranks = shape_of(cut), machine.rank_of
    part = f"{shape.layers}" + (f"-rank-of-{ranks}" if ranks > 1 else "")
    name, model = name or f"{stack.name}-shape{part}"[:48], _repository(stack, shape.layers, ranks)
    nbytes = sum(size for _, size in tensors_from_shape(shape))
    # The projection of three hidden states is whole on each GPU; attention on twice the width is not.
    draft_gb = 2.0 * ((3 + 7 / ranks) * shape.hidden**2 + 3 * shape.hidden * shape.intermediate) / 1e9
    spec = {
        "method": "eagle3",
        "k": 3,
        "drafter": {"model": f"{model}-eagle3", "weight_gb": round(draft_gb, 2)},
        "options": {"rejection_sample_method": "synthetic", "synthetic_acceptance_length": 2.4},
    }

    def yielding(k: int, **more: object) -> dict[str, Any]:
        """The head at k, accepted by position, so that a smaller k yields what it would."""
        options = {"rejection_sample_method": "synthetic", "synthetic_acceptance_rates": list(_RATES[:k])}
        return {"speculation": {**spec, "k": k, "options": options, **more}}

    data = {
        "schema": 1,
        "name": name,
        "title": f"{shape.layers} layers of {stack.target.model}, dummy weights"
        + (f", one GPU's part of {ranks}" if ranks > 1 else ""),
        "allow_lossy": True,
        "target": {
            "model": model,
            "served_name": f"{stack.target.served_name}-shape{part}",
            "license": stack.target.license,
            "max_model_len": min(stack.target.max_model_len, machine.max_model_len),
            "weight_gb": round(nbytes / 1e9, 1),
        },
        "engine": {
            "version": stack.engine.version,
            "build": "cuda",
            "flags": {
                "load-format": "dummy",
                # Decode steps as whole graphs; what compiling would add is the same at every k.
                "compilation-config": {
                    "mode": 0,
                    "cudagraph_mode": "FULL_DECODE_ONLY",
                    # On several GPUs of a Hopper node this one is compiled on first use, for minutes, and needs nvcc.
                    "pass_config": {"fuse_allreduce_rms": False},
                },
                "enable-prefix-caching": False,
                # Shapes run on none of FlashInfer's GEMMs; trying them out takes longer than the rest of the start.
                "kernel-config": {"enable_flashinfer_autotune": False},
                **{flag: value or True for flag, value in machine.flags.items()},
            },
        },
        # FlashInfer's sampler is compiled on first use, which needs nvcc.
        "env": {"VLLM_USE_FLASHINFER_SAMPLER": "0", **machine.env},
        "node": {
            "description": f"{machine.gpus}x {machine.accelerator}", "accelerator": machine.accelerator,
            "gpus": machine.gpus, "vram_gib": machine.vram_gib, "interconnect": _interconnect(machine),
        },
        "parallel": {"tensor": machine.gpus},
        "memory": {"gpu_utilization": 0.9, "max_num_seqs": 128},
        "variants": {
            "baseline": {"description": "plain decoding"},
            "static3": {"speculation": spec},
            "eagle3-k1": yielding(1),
            "eagle3-k3": yielding(3),
            "eagle3-dyn0": yielding(3, schedule=[[1, 127, 0], [128, 128, 3]]),
            "eagle3-auto": yielding(3, auto=True),
        },
        "campaign": {"variants": ["baseline", "static3"], "concurrency": [1, 4, 16, 64, 128]},
    }  # fmt: skip
    text = yaml.safe_dump(data, sort_keys=False, width=110)
    stack_from_text(text, f"{name}.yaml")
    return text


def _interconnect(machine: Machine) -> str:
    """What joins the GPUs, as far as their model says; without peer-to-peer copies all goes through host memory."""
    if machine.gpus == 1:
        return "none"
    by_host = machine.env.get("NCCL_P2P_DISABLE") == "1" or "RTX" in machine.accelerator
    return "pcie5" if by_host else "nvlink"


def write_shape(directory: Path, stack: Stack, cut: Mapping[str, Any], text: str, rank_of: int = 1) -> list[Path]:
    """Write the configs below a directory that `OUTRIDER_MODELS` may point to, and the stack beside them."""
    shape, written_stack = shape_of(cut), yaml.safe_load(text)
    model = _repository(stack, shape.layers, rank_of)
    files = {
        f"{model}/config.json": json.dumps(dict(cut), indent=1),
        **{f"{model}/{name}": content for name, content in byte_tokenizer(shape.vocabulary).items()},
        f"{model}-eagle3/config.json": json.dumps(
            drafter_config(shape, written_stack["target"]["max_model_len"], rank_of), indent=1
        ),
        f"{written_stack['name']}.yaml": text,
    }
    written = []
    for name, content in files.items():
        file = directory / name
        file.parent.mkdir(parents=True, exist_ok=True)
        scratch = file.with_suffix(f".{os.getpid()}.tmp")
        scratch.write_text(content.rstrip("\n") + "\n", encoding="utf-8")
        scratch.replace(file)
        written.append(file)
    return written


def _repository(stack: Stack, layers: int, rank_of: int) -> str:
    return f"outrider/{stack.target.served_name}-shape-{layers}" + (f"-rank-of-{rank_of}" if rank_of > 1 else "")
