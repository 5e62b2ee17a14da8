"""Tensors that the engine's drafter classes expect, with their shapes, from a drafter's config."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from outrider.preflight.facts.drafter import DrafterView
    from outrider.preflight.facts.shape import Mla, Shape

Layout = dict[str, tuple[int, ...]]


def expected_drafter_tensors(view: DrafterView) -> Layout | None:
    """Names (without `model.`, `midlayer` as `layers.0`) and shapes.

    Covers EAGLE-3 heads of llama, qwen3 and MLA type, and DFlash; None for classes that are not known here.
    """
    shape = view.shape
    if shape is None:
        return None
    name = view.architecture
    if view.is_mla_class and "Eagle3" in name and shape.mla is not None:
        return _joined(view, shape) | _mla_layers(shape, shape.mla)
    if "Eagle3" in name or name.startswith(("Peagle", "PEagle")):
        qwen3 = "Qwen3ForCausalLM" in name
        return _joined(view, shape) | _llama_layers(view, shape, doubled=True, head_norms=qwen3)
    if name in {"DFlashDraftModel", "DFlashQwen3ForCausalLM"}:
        layers = _llama_layers(view, shape, doubled=False, head_norms=True)
        fused = len(view.aux_layers("v2")) or shape.layers
        ends: Layout = {
            "norm.weight": (shape.hidden,),
            "hidden_norm.weight": (shape.hidden,),
            "fc.weight": (shape.hidden, (view.target_hidden or shape.hidden) * fused),
        }
        return ends | {n: s for n, s in layers.items() if not n.endswith(".hidden_norm.weight")}
    return None


def _joined(view: DrafterView, shape: Shape) -> Layout:
    target = view.target_hidden or shape.hidden
    found: Layout = {"norm.weight": (shape.hidden,)}
    if not view.uses_aux:
        return found
    found["fc.weight"] = (shape.hidden, target * view.fused_inputs)
    if view.norm_before_fc and not view.is_mla_class:
        found["input_norm.weight"] = (target * view.fused_inputs,)
    if view.fc_norm:
        found |= {f"fc_norm.{i}.weight": (target,) for i in range(view.fused_inputs)}
    return found


def _llama_layers(view: DrafterView, shape: Shape, *, doubled: bool, head_norms: bool) -> Layout:
    found: Layout = {}
    query, key = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    bias = bool(view.config.get("attention_bias", False))
    for index in range(min(shape.layers, 256)):
        layer = f"layers.{index}"
        width = 2 * shape.hidden if doubled and index == 0 else shape.hidden
        for part, rows in (("q", query), ("k", key), ("v", key)):
            found[f"{layer}.self_attn.{part}_proj.weight"] = (rows, width)
            if bias:
                found[f"{layer}.self_attn.{part}_proj.bias"] = (rows,)
        found[f"{layer}.self_attn.o_proj.weight"] = (shape.hidden, query)
        if head_norms:
            found[f"{layer}.self_attn.q_norm.weight"] = (shape.head_dim,)
            found[f"{layer}.self_attn.k_norm.weight"] = (shape.head_dim,)
        found |= _feed_forward(layer, shape)
    return found


def _mla_layers(shape: Shape, mla: Mla) -> Layout:
    found: Layout = {}
    for index in range(min(shape.layers, 256)):
        layer = f"layers.{index}"
        width = 2 * shape.hidden if index == 0 else shape.hidden
        query = shape.heads * (mla.nope_dim + mla.rope_dim)
        attention = f"{layer}.self_attn"
        if mla.q_lora_rank:
            found[f"{attention}.q_a_proj.weight"] = (mla.q_lora_rank, width)
            found[f"{attention}.q_a_layernorm.weight"] = (mla.q_lora_rank,)
            found[f"{attention}.q_b_proj.weight"] = (query, mla.q_lora_rank)
        else:
            found[f"{attention}.q_proj.weight"] = (query, width)
        found[f"{attention}.kv_a_proj_with_mqa.weight"] = (mla.kv_lora_rank + mla.rope_dim, width)
        found[f"{attention}.kv_a_layernorm.weight"] = (mla.kv_lora_rank,)
        found[f"{attention}.kv_b_proj.weight"] = (shape.heads * (mla.nope_dim + mla.value_dim), mla.kv_lora_rank)
        found[f"{attention}.o_proj.weight"] = (shape.hidden, shape.heads * mla.value_dim)
        found |= _feed_forward(layer, shape)
    return found


def _feed_forward(layer: str, shape: Shape) -> Layout:
    return {
        f"{layer}.mlp.gate_proj.weight": (shape.intermediate, shape.hidden),
        f"{layer}.mlp.up_proj.weight": (shape.intermediate, shape.hidden),
        f"{layer}.mlp.down_proj.weight": (shape.hidden, shape.intermediate),
        f"{layer}.input_layernorm.weight": (shape.hidden,),
        f"{layer}.post_attention_layernorm.weight": (shape.hidden,),
        f"{layer}.hidden_norm.weight": (shape.hidden,),
    }
