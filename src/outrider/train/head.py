"""A trained checkpoint as a directory that vLLM loads: only the head's own tensors, a complete configuration."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from outrider.train.errors import TrainError
from outrider.train.manifest import write_json
from outrider.train.tensors import copy_tensors

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

# The target lends these at serving; the embedding alone would be three times the head.
_LENT = ("embed_tokens.weight", "verifier_lm_head.weight", "verifier_norm.weight")


def build_head(
    checkpoint: Path,
    destination: Path,
    *,
    target_name: str,
    target_config: Mapping[str, Any],
    aux_layers: tuple[int, ...],
    k: int,
    lend_embedding: bool = True,
) -> dict[str, Any]:
    """Write `model.safetensors` and `config.json`.

    Args:
        checkpoint: a checkpoint directory of `speculators train`.
        destination: receives the two files.
        target_name: repository id of the target, in place of the local path that training saw.
        target_config: the target's (text) configuration.
        aux_layers: layers that training read.
        k: draft tokens a step.
        lend_embedding: leave the token embedding out, because the target's is used.

    Returns:
        `tensors`, `parameters` and `bytes` of the head.

    Raises:
        TrainError: the checkpoint's configuration contradicts what training was asked for.
    """
    config = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
    found = tuple(config.get("eagle_aux_hidden_state_layer_ids") or ())
    if found != aux_layers:
        raise TrainError(
            f"the checkpoint names auxiliary layers {list(found)}, training read {list(aux_layers)}",
            evidence=str(checkpoint / "config.json"),
            next_step="train again; an engine that guesses these layers accepts about 1 % (vllm 50170)",
        )
    decoder = config["transformer_layer_config"]
    # The head sees positions of the target, so its limit is the target's, not a default of some converter.
    decoder["max_position_embeddings"] = int(target_config["max_position_embeddings"])
    speculators = config["speculators_config"]
    speculators["verifier"]["name_or_path"] = target_name
    for proposal in speculators["proposal_methods"]:
        proposal["speculative_tokens"] = k
    config.pop("_name_or_path", None)
    destination.mkdir(parents=True, exist_ok=True)
    lent = _LENT if lend_embedding else _LENT[1:]
    kept = copy_tensors(
        checkpoint / "model.safetensors", destination / "model.safetensors", lambda name: name not in lent
    )
    write_json(destination / "config.json", config)
    floats = [t for t in kept.values() if t["dtype"] in {"BF16", "F16", "F32"}]
    if wide := sorted({t["dtype"] for t in floats} - {"BF16"}):
        raise TrainError(f"the checkpoint holds {', '.join(wide)} tensors, a head is BF16", evidence=str(checkpoint))
    return {
        "tensors": len(kept),
        "parameters": sum(_size(t["shape"]) for t in floats),
        "bytes": (destination / "model.safetensors").stat().st_size,
    }


def _size(shape: list[int]) -> int:
    product = 1
    for length in shape:
        product *= length
    return product
