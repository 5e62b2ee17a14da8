"""Vocabularies: the drafter's embedding, its output head, and the tables between draft and target ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outrider.preflight.report import Finding, found

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from outrider.preflight.checks.case import Case
    from outrider.preflight.reading import TensorInfo


def by_last_name(tensors: Mapping[str, TensorInfo], *names: str) -> TensorInfo | None:
    """The tensor whose name is one of `names` or ends in `.name`."""
    for name, tensor in tensors.items():
        if any(name == wanted or name.endswith(f".{wanted}") for wanted in names):
            return tensor
    return None


def check_vocabulary(case: Case) -> list[Finding]:
    """Sizes of the vocabularies, and where the d2t table leads."""
    view, drafter, shape, spec = case.view, case.drafter, case.shape, case.spec
    if view is None or view.shape is None or drafter is None or shape is None or spec is None:
        return []
    findings: list[Finding] = []
    ours, theirs = shape.vocabulary, view.shape.vocabulary
    if theirs != ours and not spec.options.get("use_heterogeneous_vocab"):
        findings.append(found("DRAFT009", drafter.where("config.json"), f"drafter {theirs}, target {ours}"))
    if spec.method in {"draft_model", "eagle"} or drafter.tensors is None:
        return findings
    reduced = view.draft_vocabulary
    return [
        *findings,
        *_sizes(case, drafter.tensors, reduced or ours, ours),
        *_tables(case, drafter.tables, reduced or ours, ours),
    ]


def _sizes(case: Case, tensors: Mapping[str, TensorInfo], reduced: int, full: int) -> Iterable[Finding]:
    where = case.drafter.label if case.drafter else ""
    head = by_last_name(tensors, "lm_head.weight")
    d2t, t2d = by_last_name(tensors, "d2t"), by_last_name(tensors, "t2d")
    wrong = []
    if reduced > full:
        wrong.append(f"draft_vocab_size {reduced} is above the target's {full}")
    if head is not None and head.shape and head.shape[0] != reduced:
        wrong.append(f"lm_head has {head.shape[0]} rows")
    if d2t is not None and d2t.shape != (reduced,):
        wrong.append(f"d2t has shape {list(d2t.shape)}")
    if t2d is not None and t2d.shape != (full,):
        wrong.append(f"t2d has shape {list(t2d.shape)}, the target's vocabulary is {full}")
    if wrong:
        yield found("DRAFT010", where, f"draft_vocab_size {reduced}: {'; '.join(wrong)}")
    if reduced != full and d2t is None:
        yield found("DRAFT011", where, f"draft_vocab_size {reduced}, target {full}, no d2t")
    if reduced == full and d2t is not None:
        yield found("DRAFT014", where, f"draft_vocab_size {reduced} is the target's vocabulary")
    if head is None and reduced != full:
        yield found("DRAFT019", where, f"draft_vocab_size {reduced}, target {full}, no lm_head.weight")


def _tables(case: Case, tables: Mapping[str, tuple[int, ...]], reduced: int, full: int) -> Iterable[Finding]:
    offsets = tables.get("d2t", ())
    where = f"{case.drafter.label if case.drafter else ''}, tensor d2t"
    if not offsets or reduced == full:
        return
    ids = [index + offset for index, offset in enumerate(offsets)]
    outside = [index for index, token in enumerate(ids) if not 0 <= token < full]
    if outside:
        index = outside[0]
        hint = ""
        if all(0 <= value < full for value in offsets) and len(set(offsets)) == len(offsets):
            hint = "; the values themselves are distinct ids inside the vocabulary: the table holds ids, not offsets"
        yield found(
            "DRAFT012",
            where,
            f"{len(outside)} of {len(ids)} lead outside 0..{full - 1}, d2t[{index}] to {ids[index]}{hint}",
        )
        return
    if len(set(ids)) != len(ids):
        yield found("DRAFT013", where, f"{len(ids) - len(set(ids))} draft ids lead to a token that another one has")
        return
    marked = tables.get("t2d", ())
    if len(marked) == full:
        missed = set(ids) ^ {token for token, flag in enumerate(marked) if flag}
        if missed:
            yield found("DRAFT013", where, f"d2t and t2d differ in {len(missed)} tokens, first {min(missed)}")
