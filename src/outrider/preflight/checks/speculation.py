"""The engine's SpeculativeConfig: fields, values and combinations of the pinned version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from outrider.engine.vllm import speculative_config
from outrider.engine.vllm_utility import METHODS
from outrider.preflight.checks.combinations import check_combinations
from outrider.preflight.report import Finding, found
from outrider.stack.names import did_you_mean
from outrider.vllm_ext.interface import REQUIRED

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from outrider.preflight.checks.case import Case
    from outrider.preflight.engine_tables import EngineTable

# Old or foreign name -> today's, seen in published commands; None: dropped without a successor.
RENAMED: dict[str, str | None] = {
    "draft_attention_backend": "attention_backend",
    "draft_kv_cache_dtype": "kv_cache_dtype",
    "draft_moe_backend": "moe_backend",
    "tensor_parallel_size": "draft_tensor_parallel_size",
    "draft_tp_size": "draft_tensor_parallel_size",
    "disable_by_batch_size": "num_speculative_tokens_per_batch_size",
    "speculative_disable_by_batch_size": "num_speculative_tokens_per_batch_size",
    "speculative_model": "model",
    "draft_model": "model",
    "num_draft_tokens": "num_speculative_tokens",
    "speculative_tokens": "num_speculative_tokens",
    "ngram_prompt_lookup_max": "prompt_lookup_max",
    "ngram_prompt_lookup_min": "prompt_lookup_min",
    "acceptance_method": "rejection_sample_method",
    "spec_decoding_acceptance_method": "rejection_sample_method",
    "draft_sampling_method": "draft_sample_method",
    "synthetic_acceptance_rate": "synthetic_acceptance_rates",
    "draft_revision": "revision",
    "draft_quantization": "quantization",
    "draft_max_model_len": "max_model_len",
    "disable_logprobs": None,
    "disable_mqa_scorer": None,
    "speculative_token_tree": None,
    "posterior_threshold": None,
    "posterior_alpha": None,
}
# (field, value) of older versions -> what says the same today.
_MOVED_VALUES = {
    ("rejection_sample_method", "probabilistic"): "draft_sample_method: probabilistic",
    ("rejection_sample_method", "strict"): "rejection_sample_method: standard",
    ("rejection_sample_method", "rejection_sampler"): "rejection_sample_method: standard",
}
# Fields that the stack's schema has a word for.
_OWN = {
    "method": "speculation.method",
    "num_speculative_tokens": "speculation.k",
    "model": "speculation.drafter.model",
    "revision": "speculation.drafter.revision",
    "num_speculative_tokens_per_batch_size": "speculation.schedule",
    "prompt_lookup_min": "speculation.lookup_min",
    "prompt_lookup_max": "speculation.lookup_max",
}
_SCALARS: dict[str, TypeAdapter[Any]] = {
    "bool": TypeAdapter(bool),
    "int": TypeAdapter(int),
    "float": TypeAdapter(float),
    "str": TypeAdapter(str),
}


def check_speculation(case: Case) -> list[Finding]:
    """All findings about the speculative configuration; none for a variant that does not speculate."""
    spec = case.spec
    if spec is None:
        return []
    findings: list[Finding] = []
    if case.table is not None:
        findings += _method(case, case.table)
        for field, value in speculative_config(spec, None).items():
            findings += _field(case, case.table, field, value)
    for field in spec.options.keys() & _OWN.keys():
        findings.append(found("SPEC010", case.place(f"speculation.options.{field}"), f"belongs in {_OWN[field]}"))
    return [*findings, *_schedule(case), *_auto(case), *check_combinations(case)]


def schedule_problems(bands: Sequence[tuple[int, int, int]]) -> list[str]:
    """What is wrong with a schedule, by the engine's rules (v1/spec_decode/dynamic/utils.py)."""
    if not bands:
        return ["it has no band"]
    problems = []
    if bands[0][0] != 1:
        problems.append(f"the first band starts at {bands[0][0]}, not at 1")
    previous = 0
    for first, last, k in bands:
        if first <= 0 or last < first or k < 0:
            problems.append(f"[{first}, {last}, {k}] is no band")
        if first <= previous:
            problems.append(f"[{first}, {last}, {k}] overlaps the band before")
        previous = max(previous, last)
    return problems


def _method(case: Case, table: EngineTable) -> Iterable[Finding]:
    method = case.spec.method if case.spec else ""
    if method not in table.methods:
        hint = did_you_mean(method, table.methods)
        yield found("SPEC003", case.place("speculation.method"), f"{method}, vllm {table.version}{hint}")


def _field(case: Case, table: EngineTable, field: str, value: object) -> Iterable[Finding]:
    where = case.place(f"speculation.options.{field}")
    fields = table.speculative_fields
    if field not in fields:
        yield found("SPEC001", where, f"vllm {table.version} has no {field}{_successor(field, table)}")
        return
    if field in {"method", "model"}:
        return
    facts = fields[field]
    allowed: Sequence[str] = facts.get("values", ())
    if allowed and str(value) not in allowed:
        moved = _MOVED_VALUES.get((field, str(value)))
        hint = f"; write {moved}" if moved else did_you_mean(str(value), allowed)
        yield found("SPEC002", where, f"{value!r}; allowed: {', '.join(allowed)}{hint}")
    elif (fault := _type_fault(str(facts["type"]), value)) is not None:
        yield found("SPEC002", where, f"{value!r} {fault}")
    elif isinstance(value, int | float) and not isinstance(value, bool):
        low, above = facts.get("min"), facts.get("above")
        if (low is not None and value < low) or (above is not None and value <= above):
            bound = f"at least {low}" if low is not None else f"above {above}"
            yield found("SPEC002", where, f"{value}; must be {bound}")
    else:
        yield from _named(table, field, value, where)


def _named(table: EngineTable, field: str, value: object, where: str) -> Iterable[Finding]:
    """Fields whose values are names that other lists of the table hold."""
    names = {
        "attention_backend": table.attention_backends | {"AUTO"},
        "kv_cache_dtype": table.kv_cache_dtypes,
        "quantization": frozenset(table.quantization),
    }.get(field)
    text = str(value).upper() if field == "attention_backend" else str(value)
    if names is not None and text not in names:
        yield found("SPEC002", where, f"{value!r}{did_you_mean(text, names)}")


def _successor(field: str, table: EngineTable) -> str:
    if field in RENAMED:
        today = RENAMED[field]
        return f"; did you mean {today!r}?" if today else "; it was dropped and has no successor"
    return did_you_mean(field, table.speculative_fields)


def _type_fault(written: str, value: object) -> str | None:
    """Why a value does not fit a scalar type as the engine's source writes it; None if it does."""
    kinds = [kind.strip() for kind in written.split("|")]
    if value is None and "None" in kinds:
        return None
    scalars = [_SCALARS[kind] for kind in kinds if kind in _SCALARS]
    if not scalars or len(scalars) != len([kind for kind in kinds if kind != "None"]):
        return None
    for adapter in scalars:
        try:
            adapter.validate_python(value)
        except ValidationError:
            continue
        return None
    return f"is no {' or '.join(kind for kind in kinds if kind != 'None')}"


def _schedule(case: Case) -> Iterable[Finding]:
    spec = case.spec
    if spec is None or spec.schedule is None:
        return
    where = case.place("speculation.schedule")
    bands = [list(band) for band in spec.schedule]
    if problems := schedule_problems(spec.schedule):
        yield found("SPEC005", where, "; ".join(problems))
        return
    if case.stack.parallel.data > 1:
        yield found("SPEC006", where, f"parallel.data {case.stack.parallel.data}")
        return
    if case.runner == "v1" and spec.method not in METHODS:
        yield found("SPEC007", where, f"method {spec.method}, runner V1")
        return
    if _loses_graphs(case):
        yield found("SPEC008", where, f"{bands}, runner V1")
    most = case.stack.memory.max_num_seqs
    if most is not None and spec.schedule[-1][1] < most:
        evidence = f"{bands} ends at {spec.schedule[-1][1]}, max_num_seqs is {most}"
        yield found("SPEC009", where, evidence)


def _loses_graphs(case: Case) -> bool:
    return case.runner == "v1" and case.stack.engine.build == "cuda" and not case.flags.get("enforce-eager")


def _auto(case: Case) -> Iterable[Finding]:
    spec = case.spec
    if spec is None or not spec.auto:
        return
    where = case.place("speculation.auto")
    table, stack = case.table, case.stack
    if table is None or (lacking := sorted(REQUIRED - table.scheduler_interface)):
        evidence = f"{stack.engine.name} {stack.engine.version}: "
        yield found("SPEC021", where, evidence + ("no table" if table is None else f"no {', '.join(lacking)}"))
    obstacles = [
        (stack.parallel.data > 1, f"parallel.data {stack.parallel.data}"),
        (spec.method not in METHODS, f"method {spec.method}: one of {', '.join(sorted(METHODS))}"),
        (stack.memory.max_num_seqs is None, "memory.max_num_seqs is not set"),
    ]
    for applies, evidence in obstacles:
        if applies:
            yield found("SPEC022", where, evidence)
    servers = case.flags.get("api-server-count")
    if isinstance(servers, int) and servers > 1:
        yield found("SPEC023", where, f"api-server-count {servers}")
    if spec.schedule is None and spec.method in METHODS and _loses_graphs(case):
        yield found("SPEC008", where, "auto, runner V1")
