"""The target's tensors against its config: is the checkpoint whole?"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from outrider.preflight.facts.towers import VISION
from outrider.preflight.report import Finding, found

if TYPE_CHECKING:
    from outrider.preflight.facts.shape import Shape
    from outrider.preflight.reading import Checkpoint

_LAYER = re.compile(r"(?:^|\.)layers\.(\d+)\.")
_EMBEDDING = ("embed_tokens.weight", "wte.weight", "word_embeddings.weight")


def check_target_tensors(target: Checkpoint, shape: Shape | None) -> list[Finding]:
    """Layers, embedding, head and prediction layers that the config announces; none if headers are incomplete."""
    tensors = target.tensors
    if shape is None or tensors is None or any(fault.kind in {"shard_absent", "header"} for fault in target.faults):
        return []
    layers = {_layer_index(name) for name in tensors if not VISION.search(name)}
    if max(layers, default=-1) < 0:
        # Another naming than `layers.N.`; what its parts are called is not known here.
        return []
    findings: list[Finding] = []
    embedding = [name for name in tensors if name.endswith(_EMBEDDING)]
    absent = [f"layer {index}" for index in range(min(shape.layers, 4096)) if index not in layers]
    if not embedding:
        absent.append("the embedding")
    if not shape.tied and not any("lm_head" in name or name.endswith("output.weight") for name in tensors):
        absent.append("lm_head (tie_word_embeddings is false)")
    if absent:
        findings.append(found("TARGET006", target.label, f"{len(absent)} missing: {', '.join(absent[:6])}"))
    rows = {tensors[name].shape[0] for name in embedding if len(tensors[name].shape) == 2}
    # Rows beyond vocab_size are padding; fewer are a fault.
    if rows and max(rows) < shape.vocabulary:
        evidence = f"{embedding[0]} has {max(rows)} rows, vocab_size is {shape.vocabulary}"
        findings.append(found("TARGET007", target.label, evidence))
    if shape.mtp_layers and not has_mtp_tensors(target, shape):
        evidence = f"{shape.mtp_layers} declared, no tensor of one"
        findings.append(found("TARGET005", target.where("config.json"), evidence))
    return findings


def has_mtp_tensors(target: Checkpoint, shape: Shape) -> bool:
    """True if the checkpoint holds tensors of its multi-token-prediction layers."""
    return any(
        name.startswith(("mtp.", "model.mtp.")) or _layer_index(name) >= shape.layers for name in target.tensors or ()
    )


def _layer_index(name: str) -> int:
    hit = _LAYER.search(name)
    return int(hit.group(1)) if hit else -1
