"""The target against the engine: known there, its parsers too, can it be split and served at this length?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from outrider.preflight.facts.runner import compute_capability
from outrider.preflight.facts.shape import ShapeError, shape_of
from outrider.preflight.report import Finding, found
from outrider.stack.names import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable

    from outrider.preflight.checks.case import Case
    from outrider.preflight.engine_tables import EngineTable


def check_target(case: Case) -> list[Finding]:
    """All findings about the target that hold whatever the variant speculates with."""
    config = case.target.config
    if config is None:
        return []
    findings: list[Finding] = []
    where = case.target.where("config.json")
    try:
        shape_of(config)
    except ShapeError as error:
        findings.append(found("TARGET002", where, str(error)))
    if case.table is None:
        engine = case.stack.engine
        where_pinned = f"stack {case.stack.name}, engine.version"
        findings.append(found("TARGET017", where_pinned, f"{engine.name} {engine.version}"))
    else:
        findings += _known_to_engine(case, case.table, where)
    if case.shape is not None:
        findings += _limits(case, where)
    return findings


def _known_to_engine(case: Case, table: EngineTable, where: str) -> list[Finding]:
    findings: list[Finding] = []
    shape = case.shape
    listed = (case.target.config or {}).get("architectures") or []
    names = [str(name) for name in listed] if isinstance(listed, list) else []
    if not any(name in table.targets for name in names):
        removed = table.removed_architectures
        gone = [f"{name} was last served by {removed[name]}" for name in names if name in removed]
        evidence = f"architectures {names}; vllm {table.version} serves {len(table.targets)}"
        evidence += did_you_mean(names[0], table.targets) if names else ""
        findings.append(found("TARGET001", where, "; ".join([evidence, *gone])))
    elif case.stack.parallel.pipeline > 1 and not any(name in table.pipeline_targets for name in names):
        findings.append(found("TARGET016", where, f"{names[0]}, parallel.pipeline {case.stack.parallel.pipeline}"))
    findings += _parsers(case, table)
    if shape is not None and shape.quantization:
        findings += _quantization(case, table, where)
    if case.stack.memory.kv_cache_dtype not in table.kv_cache_dtypes:
        allowed = ", ".join(sorted(table.kv_cache_dtypes))
        findings.append(
            found(
                "TARGET018",
                f"stack {case.stack.name}, memory.kv_cache_dtype",
                f"{case.stack.memory.kv_cache_dtype}; allowed: {allowed}",
            )
        )
    backend = case.flags.get("attention-backend")
    if backend is not None and str(backend).upper() not in table.attention_backends | {"AUTO"}:
        hint = did_you_mean(str(backend).upper(), table.attention_backends)
        findings.append(found("TARGET019", case.place("flags.attention-backend"), f"{backend}{hint}"))
    return findings


def _parsers(case: Case, table: EngineTable) -> Iterable[Finding]:
    known = {"tool-call-parser": table.tool_parsers, "reasoning-parser": table.reasoning_parsers}
    for flag, names in known.items():
        name = case.flags.get(flag)
        if name is not None and name not in names:
            hint = did_you_mean(str(name), names)
            yield found("TARGET013", f"stack {case.stack.name}, engine.flags.{flag}", f"{name!r}{hint}")


def _quantization(case: Case, table: EngineTable, where: str) -> Iterable[Finding]:
    quantization = case.shape.quantization if case.shape else {}
    method = str(quantization.get("quant_method", "")).lower()
    # modelopt writes its flavour in `quant_algo`; the engine tells the flavours apart by itself.
    if method not in table.quantization:
        allowed = ", ".join(sorted(table.quantization))
        yield found("TARGET003", where, f"quant_method {method!r}; vllm {table.version} reads {allowed}")
        return
    lowest, here = table.quantization[method], compute_capability(case.stack.node.accelerator)
    if case.stack.engine.build == "cuda" and lowest and here and here < lowest:
        yield found(
            "TARGET004",
            where,
            f"{method} needs compute capability {lowest / 10}, {case.stack.node.accelerator} has {here / 10}",
        )


def _limits(case: Case, where: str) -> Iterable[Finding]:
    shape, parallel, target = case.shape, case.stack.parallel, case.stack.target
    if shape is None:
        return
    if shape.heads % parallel.tensor:
        yield found("TARGET014", where, f"{shape.heads} attention heads, parallel.tensor {parallel.tensor}")
    allows_longer = case.env.get("VLLM_ALLOW_LONG_MAX_MODEL_LEN") in {"1", "true"}
    if shape.max_positions and target.max_model_len > shape.max_positions and not allows_longer:
        yield found("TARGET015", where, f"limit {shape.max_positions}, max_model_len {target.max_model_len}")
