"""The shape of a model as its config describes it, with every value checked before it is used."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

# Where multimodal configs keep the part that writes text, in the order in which they are tried.
_TEXT_PARTS = ("text_config", "llm_config", "language_config")
# Rotary scalings that vLLM does not multiply the context by (config/model.py, 0.33.0): the context that
# such a config states is already the scaled one.
_SCALED_ALREADY = frozenset({"default", "su", "longrope", "llama3", "mrope", "proportional"})


@dataclass(frozen=True, slots=True)
class Mla:
    """Multi-head latent attention: one compressed vector a token and layer, the same on every GPU.

    Attributes:
        kv_lora_rank: width of the compressed vector.
        rope_dim: width of the rotary part that is cached beside it.
        q_lora_rank: width of the compressed query, None if queries are not compressed.
        nope_dim: width of the part of a query head that is not rotated.
        value_dim: width of a value head.
    """

    kv_lora_rank: int
    rope_dim: int
    q_lora_rank: int | None
    nope_dim: int
    value_dim: int


@dataclass(frozen=True, slots=True)
class Experts:
    """Mixture of experts.

    Attributes:
        count: routed experts a layer.
        per_token: routed experts that one token uses.
        shared: experts that every token uses.
        intermediate: width of one expert.
        dense_layers: layers at the beginning that have a plain feed-forward instead.
    """

    count: int
    per_token: int
    shared: int
    intermediate: int
    dense_layers: int


@dataclass(frozen=True, slots=True)
class Shape:
    """A text model's dimensions.

    Attributes:
        architecture: first of `architectures`, of the whole model.
        model_type: of the text part.
        hidden: hidden size.
        layers: decoder layers.
        heads: query heads.
        kv_heads: key/value heads before tensor parallelism.
        head_dim: width of one head.
        vocabulary: rows of the embedding.
        intermediate: width of the feed-forward of dense layers.
        max_positions: tokens that the config allows, rotary scaling applied; None if it does not say.
        mtp_layers: multi-token-prediction layers that the config declares.
        tied: output head and embedding are one matrix.
        dtype: `torch_dtype`, None if unstated.
        quantization: `quantization_config`, empty if unquantised.
        rope: rotary settings, merged from either spelling.
        eos_ids: of `config.json`, both parts.
    """

    architecture: str
    model_type: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    intermediate: int
    max_positions: int | None
    mla: Mla | None = None
    experts: Experts | None = None
    mtp_layers: int = 0
    tied: bool = False
    dtype: str | None = None
    quantization: Mapping[str, Any] = field(default_factory=dict)
    rope: Mapping[str, Any] = field(default_factory=dict)
    eos_ids: frozenset[int] = frozenset()


class ShapeError(ValueError):
    """A config that lacks a dimension or states an impossible one; the message names the fields."""


def text_part(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part of a config that describes the text model; the config itself if it is not nested."""
    thinker = config.get("thinker_config")
    outer = thinker if isinstance(thinker, dict) else config
    for name in _TEXT_PARTS:
        inner = outer.get(name)
        if isinstance(inner, dict) and "hidden_size" in inner:
            return inner
    return config


def shape_of(config: Mapping[str, Any]) -> Shape:
    """Read a shape.

    Raises:
        ShapeError: a dimension is absent or not a positive integer; all such fields are named.
    """
    text = text_part(config)
    reader = _Reader(text)
    hidden = reader.count("hidden_size", "n_embd")
    layers = reader.count("num_hidden_layers", "n_layer")
    heads = reader.count("num_attention_heads", "n_head")
    vocabulary = reader.count("vocab_size")
    kv_heads = reader.count("num_key_value_heads", default=heads)
    head_dim = reader.count("head_dim", default=hidden // heads if heads else 0)
    intermediate = reader.count("intermediate_size", "n_inner", default=4 * hidden)
    mla = _mla(text, reader)
    experts = _experts(text, reader)
    if reader.problems:
        raise ShapeError("; ".join(reader.problems))
    rope = rope_settings(text)
    return Shape(
        architecture=architecture_of(config),
        model_type=str(text.get("model_type", "")),
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        vocabulary=vocabulary,
        intermediate=intermediate,
        max_positions=_max_positions(text, rope),
        mla=mla,
        experts=experts,
        mtp_layers=integer(text.get("num_nextn_predict_layers") or text.get("num_mtp_layers")) or 0,
        tied=bool(text.get("tie_word_embeddings", config.get("tie_word_embeddings", False))),
        dtype=dtype_of(text) or dtype_of(config),
        quantization=_quantization(config, text),
        rope=rope,
        eos_ids=id_set(config.get("eos_token_id")) | id_set(text.get("eos_token_id")),
    )


def architecture_of(config: Mapping[str, Any]) -> str:
    """First entry of `architectures`, empty if there is none."""
    listed = config.get("architectures")
    return str(listed[0]) if isinstance(listed, list) and listed else ""


def rope_settings(text: Mapping[str, Any]) -> dict[str, Any]:
    """Rotary settings under one roof: `rope_parameters` (new), or `rope_scaling` and `rope_theta` (old)."""
    found: dict[str, Any] = {}
    if (theta := text.get("rope_theta")) is not None:
        found["rope_theta"] = theta
    for name in ("rope_scaling", "rope_parameters"):
        part = text.get(name)
        if isinstance(part, dict):
            found |= part
    if "rope_type" not in found:
        found["rope_type"] = found.pop("type", "default")
    return found


def id_set(value: object) -> frozenset[int]:
    """Token ids given as one number or a list."""
    values = value if isinstance(value, list) else [value]
    return frozenset(item for item in values if isinstance(item, int) and not isinstance(item, bool))


def integer(value: object) -> int | None:
    """The value if it is an integer, else None (true and false are not integers)."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def dtype_of(config: Mapping[str, Any]) -> str | None:
    """`torch_dtype`, or `dtype` as newer configs write it."""
    value = config.get("torch_dtype") or config.get("dtype")
    return str(value).removeprefix("torch.") if value else None


def _quantization(config: Mapping[str, Any], text: Mapping[str, Any]) -> Mapping[str, Any]:
    for part in (config, text):
        for name in ("quantization_config", "compression_config"):
            found = part.get(name)
            if isinstance(found, dict):
                return found
    return {}


def _max_positions(text: Mapping[str, Any], rope: Mapping[str, Any]) -> int | None:
    stated = integer(text.get("max_position_embeddings")) or integer(text.get("n_positions"))
    if stated is None:
        return None
    factor = rope.get("factor")
    if rope["rope_type"] in _SCALED_ALREADY or not isinstance(factor, int | float) or factor <= 0:
        return stated
    original = integer(rope.get("original_max_position_embeddings"))
    return int((original if rope["rope_type"] == "yarn" and original else stated) * factor)


def _mla(text: Mapping[str, Any], reader: _Reader) -> Mla | None:
    if not text.get("kv_lora_rank"):
        return None
    return Mla(
        kv_lora_rank=reader.count("kv_lora_rank"),
        rope_dim=reader.count("qk_rope_head_dim"),
        q_lora_rank=reader.count("q_lora_rank") if text.get("q_lora_rank") else None,
        nope_dim=reader.count("qk_nope_head_dim"),
        value_dim=reader.count("v_head_dim"),
    )


def _experts(text: Mapping[str, Any], reader: _Reader) -> Experts | None:
    name = next((n for n in ("n_routed_experts", "num_experts", "num_local_experts") if text.get(n)), None)
    if name is None:
        return None
    return Experts(
        count=reader.count(name),
        per_token=reader.count("num_experts_per_tok", default=1),
        shared=integer(text.get("n_shared_experts")) or 0,
        intermediate=reader.count("moe_intermediate_size", "intermediate_size"),
        dense_layers=integer(text.get("first_k_dense_replace")) or 0,
    )


class _Reader:
    """Reads positive integers and remembers what was wrong."""

    def __init__(self, text: Mapping[str, Any]) -> None:
        self._text = text
        self.problems: list[str] = []

    def count(self, *names: str, default: int | None = None) -> int:
        for name in names:
            if self._text.get(name) is None:
                continue
            value = integer(self._text[name])
            # Beyond any model, and arithmetic on it would be slow.
            if value is None or not 0 < value < 1 << 40:
                self.problems.append(f"{name} is {self._text[name]!r:.60}, not a positive integer")
                return 1
            return value
        if default is not None:
            return default
        self.problems.append(f"{names[0]} is absent")
        return 1
