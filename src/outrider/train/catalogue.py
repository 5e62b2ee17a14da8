"""Targets and nodes that a plan can name: the shipped catalogue, the user's files, and this machine."""

from __future__ import annotations

import json
import os
import shutil
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from outrider.stack.names import did_you_mean
from outrider.train.errors import TrainError
from outrider.train.plan import HeadShape, PlanNode, TargetShape

if TYPE_CHECKING:
    from collections.abc import Mapping

    from outrider.stack.schema import Stack
    from outrider.train.recipe import Recipe

THIS = "this"
# Share of peak that batched decoding reaches where nobody measured; the slowest and fastest known points are 2-6 %.
_DECODE_SHARE = 0.03
# BF16 TFLOPS of one CPU core as training and prefill see them: AVX-512 without AMX, two cores of a cloud machine.
_CORE_TFLOPS = 0.03


@cache
def _table(name: str) -> dict[str, Any]:
    text = resources.files("outrider.train").joinpath(name).read_text(encoding="utf-8")
    table: dict[str, Any] = yaml.safe_load(text)
    return table


def node_names() -> tuple[str, ...]:
    """Names that `find_node` takes, `this` last."""
    return (*_table("nodes.yaml"), THIS)


def default_node(stack: Stack) -> str:
    """The catalogue's node that a stack is meant for; `this` where there is none."""
    words = set(stack.node.accelerator.split())
    for name, facts in _table("nodes.yaml").items():
        if words <= set(facts["accelerator"].split()) and facts["gpus"] == stack.node.gpus:
            return str(name)
    return THIS


def find_node(name_or_file: str, target: TargetShape, *, answer_tok_s: float | None = None) -> PlanNode:
    """A node by name or from a YAML file of the catalogue's form.

    Args:
        name_or_file: name, `this`, or a path.
        target: decides the throughput.
        answer_tok_s: measured decode throughput of the target on that node, where the user has one.

    Raises:
        TrainError: no such node, or a file that lacks a field.
    """
    if name_or_file == THIS:
        facts: Mapping[str, Any] = _this_machine()
    elif name_or_file in _table("nodes.yaml"):
        facts = _table("nodes.yaml")[name_or_file]
    elif Path(name_or_file).is_file():
        facts = yaml.safe_load(Path(name_or_file).read_text(encoding="utf-8"))
    else:
        raise TrainError(
            f"there is no node {name_or_file!r}{did_you_mean(name_or_file, node_names())}",
            next_step=f"one of: {', '.join(node_names())}; or a YAML file in the form of train/nodes.yaml",
        )
    speed, where = _throughput(name_or_file, facts, target, answer_tok_s)
    try:
        return PlanNode(
            name=Path(name_or_file).stem,
            title=str(facts["title"]),
            gpus=int(facts["gpus"]),
            bf16_tflops=float(facts["bf16_tflops"]),
            memory_gb=float(facts["memory_gb"]),
            disk_gb=float(facts["disk_gb"]),
            prefill_mfu=float(facts["prefill_mfu"]),
            train_mfu=float(facts["train_mfu"]),
            answer_tok_s=speed,
            source=str(facts["source"]),
            answer_source=where,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise TrainError(f"node {name_or_file} is not complete", evidence=f"{type(error).__name__}: {error}") from error


def _throughput(name: str, facts: Mapping[str, Any], target: TargetShape, given: float | None) -> tuple[float, str]:
    if given is not None:
        return given, "given"
    known = _table("targets.yaml").get(target.name, {}).get("answer_tok_s", {}).get(name)
    if known:
        return float(known["value"]), str(known["source"])
    peak = int(facts["gpus"]) * float(facts["bf16_tflops"]) * 1e12
    return peak * _DECODE_SHARE / (2 * target.active_params), f"assumed: {_DECODE_SHARE:.0%} of peak"


def _this_machine() -> dict[str, Any]:
    cores = os.cpu_count() or 1
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    return {
        "title": f"this machine ({cores} cores, no GPU counted)",
        "gpus": 1,
        "bf16_tflops": cores * _CORE_TFLOPS,
        "memory_gb": memory,
        "disk_gb": shutil.disk_usage(Path.cwd()).free / 1e9,
        "prefill_mfu": 0.5,
        "train_mfu": 0.3,
        "source": "cores, memory and free disk of this machine",
    }


def target_shape(stack: Stack, config_file: Path | None) -> TargetShape:
    """The target's shape: from a `config.json`, else from the catalogue.

    Raises:
        TrainError: neither knows it.
    """
    name = stack.target.model
    if config_file is not None:
        config = json.loads(config_file.read_text(encoding="utf-8"))
        text = config.get("text_config", config)
        return TargetShape(
            name,
            int(text["num_hidden_layers"]),
            int(text["hidden_size"]),
            int(text["vocab_size"]),
            active_params(text),
            stack.target.weight_gb,
        )
    known = _table("targets.yaml").get(name)
    if known is None:
        raise TrainError(
            f"the shape of {name} is not known",
            evidence=f"the catalogue has {', '.join(_table('targets.yaml'))}",
            next_step="give the target's configuration: --config path/to/config.json",
        )
    return TargetShape(
        name,
        int(known["layers"]),
        int(known["hidden_size"]),
        int(known["vocab_size"]),
        float(known["active_params"]),
        stack.target.weight_gb,
    )


def active_params(config: Mapping[str, Any]) -> float:
    """Parameters that one token passes, from a decoder's configuration (dense, MoE, MLA).

    Embeddings are left out, the output projection counts.
    """
    hidden, layers = int(config["hidden_size"]), int(config["num_hidden_layers"])
    heads = int(config["num_attention_heads"])
    if config.get("kv_lora_rank"):
        nope, rope, value = (int(config[k]) for k in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"))
        q_rank, kv_rank = int(config.get("q_lora_rank") or hidden), int(config["kv_lora_rank"])
        attention = hidden * q_rank + q_rank * heads * (nope + rope) + hidden * (kv_rank + rope)
        attention += kv_rank * heads * (nope + value) + heads * value * hidden
    else:
        width = int(config.get("head_dim") or hidden // heads)
        kv_heads = int(config.get("num_key_value_heads") or heads)
        attention = hidden * width * (2 * heads + 2 * kv_heads)
    experts = int(config.get("num_experts_per_tok") or 0)
    dense_layers = int(config.get("first_k_dense_replace") or 0) if experts else layers
    dense = 3 * hidden * int(config.get("intermediate_size") or 4 * hidden)
    shared = int(config.get("n_shared_experts") or 0)
    routed = 3 * hidden * int(config.get("moe_intermediate_size") or 0) * (experts + shared)
    projection = hidden * int(config["vocab_size"])
    return float(layers * attention + dense_layers * dense + (layers - dense_layers) * routed + projection)


def head_shape(target: TargetShape, recipe: Recipe) -> HeadShape:
    """The head that a recipe trains."""
    geometry = recipe.draft_config or {}
    return HeadShape(
        aux_layers=len(recipe.aux_layers),
        hidden_size=target.hidden_size,
        intermediate_size=int(geometry.get("intermediate_size") or 3 * target.hidden_size),
        draft_vocab_size=recipe.draft_vocab_size or target.vocab_size,
    )
