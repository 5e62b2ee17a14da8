"""Method mtp: the target drafts with prediction layers of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outrider.preflight.checks.target_tensors import has_mtp_tensors
from outrider.preflight.report import Finding, found

if TYPE_CHECKING:
    from outrider.preflight.checks.case import Case

# The config names MTP layers in one of these; the engine's overrides turn each into `n_predict`.
_MTP_FIELDS = ("num_nextn_predict_layers", "num_mtp_layers", "mtp_num_hidden_layers", "n_predict")


def check_mtp(case: Case) -> list[Finding]:
    """Layers declared and present, and k a multiple of them; a drafter of its own is not looked into."""
    spec, shape = case.spec, case.shape
    if spec is None or shape is None or spec.drafter is not None:
        return []
    where = case.target.where("config.json")
    if not shape.mtp_layers:
        return [found("DRAFT029", where, f"none of {', '.join(_MTP_FIELDS)} is above 0")]
    if case.target.tensors is not None and not has_mtp_tensors(case.target, shape):
        return [found("DRAFT029", where, f"{shape.mtp_layers} layers declared, no tensor of one")]
    if spec.k > shape.mtp_layers and spec.k % shape.mtp_layers:
        return [found("DRAFT030", case.place("speculation.k"), f"k {spec.k}, {shape.mtp_layers} MTP layers")]
    if spec.k > shape.mtp_layers:
        return [found("DRAFT031", case.place("speculation.k"), f"k {spec.k}, {shape.mtp_layers} MTP layers")]
    return []
