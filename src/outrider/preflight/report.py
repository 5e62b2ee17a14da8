"""Findings and the report that holds them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field

from outrider.preflight.catalogue import KINDS, Severity

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

_ORDER: dict[Severity, int] = {"error": 0, "advisory": 1, "info": 2}


class Finding(BaseModel):
    """One thing that was found.

    Attributes:
        code: stable code; `doc` explains it.
        severity: `error`, `advisory` or `info`.
        where: file and field, or stack and field.
        evidence: the values that were seen.
        fix: what to do.
        doc: page about the code.
        variant: variant that it concerns, None for all.
    """

    model_config = ConfigDict(frozen=True)

    code: str
    severity: Severity
    title: str
    where: str
    evidence: str
    fix: str
    doc: str
    variant: str | None = None


def found(code: str, where: str, evidence: str, *, fix: str | None = None) -> Finding:
    """A finding of a known kind; `fix` replaces the general advice where something sharper can be said."""
    kind = KINDS[code]
    return Finding(
        code=code,
        severity=kind.severity,
        title=kind.title,
        where=where,
        evidence=evidence,
        fix=fix or kind.fix,
        doc=f"docs/findings/{code}.md",
    )


class MemoryFigures(BaseModel):
    """Estimated memory of one GPU (or of the CPU engine), in bytes.

    Attributes:
        budget: what the engine may use.
        weights: target's weights on the fullest GPU.
        drafter: drafter's weights there.
        activations: peak of one step beside the weights.
        buffers: CUDA context and NCCL.
        graphs: captured CUDA graphs.
        kv_bytes_per_token: KV cache a token, drafter's layers included.
        kv_tokens: tokens that fit.
        longest_at_full_batch: tokens a request when `memory.max_num_seqs` run at once.
        requests_at_full_length: requests of `target.max_model_len` that fit at once.
        source: where the shapes come from.
    """

    model_config = ConfigDict(frozen=True)

    variant: str
    budget: int
    weights: int
    drafter: int
    activations: int
    buffers: int
    graphs: int
    kv_bytes_per_token: int
    kv_tokens: int
    longest_at_full_batch: int | None = None
    requests_at_full_length: int = 0
    source: str = ""


class PreflightReport(BaseModel):
    """What preflight says about a stack, or one variant of it."""

    model_config = ConfigDict(frozen=True)

    schema_: int = Field(1, alias="schema")
    stack: str
    stack_digest: str
    engine: str
    variants: tuple[str, ...]
    findings: tuple[Finding, ...] = ()
    memory: tuple[MemoryFigures, ...] = ()
    seconds: float = 0.0

    def count(self, severity: Severity) -> int:
        """Findings of a severity."""
        return sum(1 for finding in self.findings if finding.severity == severity)

    @property
    def exit_code(self) -> int:
        """0 fine (information only), 1 errors, 3 advisories only."""
        if self.count("error"):
            return 1
        return 3 if self.count("advisory") else 0


def accepted(findings: Iterable[Finding], codes: Collection[str]) -> list[Finding]:
    """Errors whose code the user accepts, as advisories: still shown, no longer in the way."""
    return [
        finding.model_copy(update={"severity": "advisory", "title": f"{finding.title} (accepted)"})
        if finding.code in codes and finding.severity == "error"
        else finding
        for finding in findings
    ]


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Errors first; the same finding of several variants only once, then without a variant."""
    by_content: dict[Finding, set[str | None]] = {}
    for finding in findings:
        by_content.setdefault(finding.model_copy(update={"variant": None}), set()).add(finding.variant)
    merged = [
        finding.model_copy(update={"variant": next(iter(variants)) if len(variants) == 1 else None})
        for finding, variants in by_content.items()
    ]
    return tuple(sorted(merged, key=lambda f: (_ORDER[f.severity], f.code, f.variant or "", f.where)))
