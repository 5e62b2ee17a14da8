"""Tokenizer, chat template and end-of-sequence ids of the target; tokenizer identity of a drafter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outrider.preflight.facts.shape import id_set
from outrider.preflight.report import Finding, found

if TYPE_CHECKING:
    from collections.abc import Iterable

    from outrider.preflight.checks.case import Case


def check_tokenizer(case: Case) -> list[Finding]:
    """Findings about the target's tokenizer files; none if the files were not at hand."""
    target = case.target
    if target.from_reference or target.config is None:
        return list(_eos(case))
    findings: list[Finding] = []
    tokenizer = target.tokenizer
    if tokenizer is None:
        findings.append(found("TARGET008", target.label, "no tokenizer.json, *.tiktoken or tokenizer.model"))
    elif tokenizer.fault is not None:
        findings.append(found("TARGET008", target.where(tokenizer.kind), tokenizer.fault))
    elif case.shape is not None and tokenizer.size > (rows := _embedding_rows(case, case.shape.vocabulary)):
        evidence = f"highest id {tokenizer.size - 1}, the embedding has {rows} rows"
        findings.append(found("TARGET009", target.where(tokenizer.kind), evidence))
    if not target.chat_template and "chat-template" not in case.flags:
        findings.append(found("TARGET010", target.label, "no chat_template in tokenizer_config.json or beside it"))
    return [*findings, *_eos(case)]


def _embedding_rows(case: Case, vocabulary: int) -> int:
    """Rows of the embedding: padding beyond `vocab_size` counts, since special tokens may lie there."""
    rows = [
        tensor.shape[0]
        for name, tensor in (case.target.tensors or {}).items()
        if name.endswith("embed_tokens.weight") and len(tensor.shape) == 2
    ]
    return max([vocabulary, *rows])


def _eos(case: Case) -> Iterable[Finding]:
    """The engine stops at the tokenizer's eos and at those of generation_config.json (vllm/sampling_params.py)."""
    if case.shape is None:
        return
    target = case.target
    in_config = case.shape.eos_ids
    in_generation = id_set(target.generation_config.get("eos_token_id"))
    tokenizer = target.tokenizer
    in_tokenizer = frozenset({tokenizer.eos_id}) if tokenizer and tokenizer.eos_id is not None else frozenset()
    if case.flags.get("generation-config") == "vllm":
        in_generation = frozenset()
    honoured = in_generation | in_tokenizer
    evidence = (
        f"config.json {sorted(in_config)}, generation_config.json {sorted(in_generation)}, "
        f"tokenizer {sorted(in_tokenizer)}"
    )
    # Without a tokenizer to read, its eos may well be the one that only config.json names.
    readable = tokenizer is not None and tokenizer.eos_id is not None
    if readable and in_config - honoured:
        yield found("TARGET011", target.where("config.json"), evidence)
    elif len({ids for ids in (in_config, in_generation, in_tokenizer) if ids}) > 1:
        yield found("TARGET012", target.where("generation_config.json"), evidence)


def check_drafter_tokenizer(case: Case) -> list[Finding]:
    """A drafter that ships tokenizer files must ship the target's."""
    if case.drafter is None or case.spec is None or case.spec.options.get("use_heterogeneous_vocab"):
        return []
    ours, theirs = case.target.tokenizer, case.drafter.tokenizer
    if ours is None or theirs is None or not ours.vocabulary_hash or not theirs.vocabulary_hash:
        return []
    where = case.drafter.where(theirs.kind)
    if ours.kind == theirs.kind and ours.vocabulary_hash != theirs.vocabulary_hash:
        return [
            found(
                "DRAFT032",
                where,
                f"vocabulary {theirs.vocabulary_hash[:12]}, the target's is {ours.vocabulary_hash[:12]}",
            )
        ]
    differing = sorted(
        token for token in ours.added.keys() & theirs.added.keys() if ours.added[token] != theirs.added[token]
    )
    if differing:
        token = differing[0]
        evidence = f"{len(differing)} added tokens, {token}: {theirs.added[token]}, target {ours.added[token]}"
        return [found("DRAFT033", where, evidence)]
    return []
