"""Faults of the files themselves, as findings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outrider.preflight.report import Finding, found

if TYPE_CHECKING:
    from outrider.preflight.reading import Checkpoint

_CODES = {
    "absent": "FILE001",
    "malformed": "FILE002",
    "shard_absent": "FILE003",
    "shard_size": "FILE004",
    "header": "FILE005",
    "index": "FILE006",
    "no_safetensors": "FILE007",
}


def check_files(checkpoint: Checkpoint) -> list[Finding]:
    """One finding a fault; a checkpoint that was not read gives the single FILE008."""
    if checkpoint.from_reference:
        return [found("FILE008", checkpoint.label, "shapes come from the reference that ships with Outrider")]
    findings = []
    for fault in checkpoint.faults:
        evidence = fault.evidence
        if fault.kind == "no_safetensors" and checkpoint.weights_listed:
            evidence += f"; there are {', '.join(checkpoint.weights_listed[:3])}"
        findings.append(found(_CODES[fault.kind], fault.where, evidence))
    return findings
