"""A running engine against what was expected of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from outrider.preflight.facts.runner import compute_capability
from outrider.preflight.report import Finding, MemoryFigures, found

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from outrider.engine import EngineScrape, StartupFacts
    from outrider.preflight.checks.case import Case

# Drafts after which acceptance near nothing is no accident.
_ENOUGH_DRAFTS = 200
_NOTHING = 0.05
_TOLERANCE = 0.20
_LOG = "start-up log"


@dataclass(frozen=True, slots=True)
class Running:
    """What was read from an engine that runs.

    Attributes:
        url: base URL.
        models: entries of /v1/models.
        scrape: metrics, None if they could not be read.
        facts: start-up facts from a log, None without one.
        faults: what could not be read, as (where, why).
    """

    url: str
    models: Sequence[Mapping[str, Any]] | None = None
    scrape: EngineScrape | None = None
    facts: StartupFacts | None = None
    faults: tuple[tuple[str, str], ...] = field(default=())


def check_running(case: Case, running: Running, memory: MemoryFigures | None) -> list[Finding]:
    """Findings about the engine as it runs; `memory` is what was estimated for it."""
    findings = [found("RUN001", where, why) for where, why in running.faults]
    if running.models is not None:
        findings += _model(case, running.url, running.models)
    if running.scrape is not None:
        findings += _speculation(case, running.url, running.scrape)
    if running.facts is None:
        findings.append(found("RUN009", running.url, "no start-up log: backend, graphs, KV tokens, layers unknown"))
    else:
        findings += _chosen(case, running.facts, memory)
    return findings


def _model(case: Case, url: str, models: Sequence[Mapping[str, Any]]) -> Iterable[Finding]:
    wanted, target = case.stack.target.served_name, case.stack.target
    served = {str(entry.get("id")): entry for entry in models}
    where = f"{url}/v1/models"
    if wanted not in served:
        yield found("RUN002", where, f"serves {', '.join(served) or 'nothing'}, expected {wanted}")
        return
    length = served[wanted].get("max_model_len")
    if isinstance(length, int) and length != target.max_model_len:
        yield found("RUN003", where, f"max_model_len {length}, the stack says {target.max_model_len}")


def _speculation(case: Case, url: str, scrape: EngineScrape) -> Iterable[Finding]:
    where = f"{url}/metrics"
    spec = case.spec
    if (spec is None) != (scrape.spec is None):
        wanted = f"method {spec.method}" if spec else "no speculation"
        seen = "no speculation counters" if scrape.spec is None else "speculation counters"
        yield found("RUN004", where, f"{seen}, expected {wanted}")
        return
    if spec is None or scrape.spec is None:
        return
    positions = len(scrape.spec.accepted_per_pos)
    if positions and positions != spec.k:
        yield found("RUN004", where, f"counters of {positions} positions, k is {spec.k}")
    if scrape.spec.drafts >= _ENOUGH_DRAFTS and scrape.spec.draft_tokens:
        kept = scrape.spec.accepted_tokens / scrape.spec.draft_tokens
        if kept < _NOTHING:
            yield found("RUN011", where, f"{kept:.1%} of {scrape.spec.draft_tokens:.0f} draft tokens accepted")


def _chosen(case: Case, facts: StartupFacts, memory: MemoryFigures | None) -> Iterable[Finding]:
    spec = case.spec
    if facts.version is not None and not facts.version.startswith(case.stack.engine.version):
        yield found("RUN012", _LOG, f"{facts.version}, pinned {case.stack.engine.version}")
    if spec is not None and facts.spec_method is not None and facts.spec_method != spec.method:
        yield found("RUN004", _LOG, f"method {facts.spec_method}, expected {spec.method}")
    yield from _execution(case, facts)
    if facts.kv_tokens is not None and memory is not None:
        apart = abs(facts.kv_tokens - memory.kv_tokens)
        if apart > _TOLERANCE * memory.kv_tokens:
            yield found("RUN007", _LOG, f"{facts.kv_tokens:,} tokens, estimated {memory.kv_tokens:,}")
    layers, stated = facts.aux_layers, case.view.aux_layers(case.runner) if case.view else ()
    if layers is not None and stated and layers != stated:
        yield found("RUN008", _LOG, f"{list(layers)}, the config states {list(stated)}")
    unknown = {
        "attention backend": facts.attention_backend is None,
        "graph mode": facts.graph_mode is None,
        "KV tokens": facts.kv_tokens is None,
        "drafter's layers": layers is None and spec is not None and spec.method in {"eagle3", "dflash"},
    }
    if any(unknown.values()):
        listed = ", ".join(name for name, is_unknown in unknown.items() if is_unknown)
        yield found("RUN009", _LOG, f"the log does not say: {listed}")


def _execution(case: Case, facts: StartupFacts) -> Iterable[Finding]:
    """Backend, graphs and runner."""
    asked = case.flags.get("attention-backend") or _expected_backend(case)
    if facts.attention_backend is not None and asked is not None and facts.attention_backend != str(asked).upper():
        yield found("RUN005", _LOG, f"{facts.attention_backend}, expected {asked}")
    if facts.graph_mode == "eager" and case.stack.engine.build == "cuda" and not case.flags.get("enforce-eager"):
        yield found("RUN006", _LOG, "eager")
    if facts.model_runner is not None and facts.model_runner != case.runner:
        yield found("RUN010", _LOG, f"{facts.model_runner}, expected {case.runner}")


def _expected_backend(case: Case) -> str | None:
    """What the engine takes by itself where there is no choice; None where it depends."""
    if case.shape is None:
        return None
    if case.stack.engine.build == "cpu":
        return "CPU_MLA" if case.shape.mla else "CPU_ATTN"
    # MLA on SM120 has TRITON_MLA only.
    sm120 = compute_capability(case.stack.node.accelerator) in {120, 121}
    return "TRITON_MLA" if case.shape.mla and sm120 else None
