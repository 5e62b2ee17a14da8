"""Runs every check for a stack: the thin part that reads, and the order of the pure parts."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from outrider.errors import OutriderError
from outrider.model_store import drafter_faults
from outrider.preflight.catalogue import KINDS
from outrider.preflight.checks.budget import check_budget
from outrider.preflight.checks.case import Case
from outrider.preflight.checks.drafter import check_drafter
from outrider.preflight.checks.files import check_files
from outrider.preflight.checks.flags import check_endpoints, check_flags
from outrider.preflight.checks.graphs import check_graphs
from outrider.preflight.checks.node import check_node
from outrider.preflight.checks.other_engine import check_other_engine
from outrider.preflight.checks.running import check_running
from outrider.preflight.checks.speculation import check_speculation
from outrider.preflight.checks.target import check_target
from outrider.preflight.checks.target_tensors import check_target_tensors
from outrider.preflight.checks.tokenizer import check_tokenizer
from outrider.preflight.engine_tables import engine_table
from outrider.preflight.facts.drafter import DrafterView, view_drafter
from outrider.preflight.facts.runner import model_runner
from outrider.preflight.facts.shape import Shape, ShapeError, shape_of
from outrider.preflight.memory import check_memory
from outrider.preflight.memory.weights import grouped
from outrider.preflight.reading import Checkpoint, LocalFiles, RemoteFiles, read_checkpoint
from outrider.preflight.report import Finding, MemoryFigures, PreflightReport, accepted, found, in_order
from outrider.preflight.shapes import reference
from outrider.stack.names import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from outrider.preflight.checks.running import Running
    from outrider.preflight.facts.node import NodeFacts
    from outrider.stack import Drafter, Speculation, Stack


def run_preflight(
    stack: Stack,
    variant: str | None = None,
    *,
    node: NodeFacts | None = None,
    model_dir: Path | None = None,
    drafter_dir: Path | Mapping[str, Path] | None = None,
    remote: bool = False,
    running: Running | None = None,
    accept: Collection[str] = (),
) -> PreflightReport:
    """Check a stack before anything is started. No weight is read.

    Args:
        stack: the stack.
        variant: one variant; None checks all of them.
        node: what was measured on the node; None leaves the node's findings at "unknown".
        model_dir: the target's files; None looks into the repository if `remote`, else takes the shape that
            ships for this target.
        drafter_dir: the drafter's files, or a map of variant to directory.
        remote: read configs and headers of repositories that have no local files, by ranged requests.
        running: what was read from an engine that runs `variant`.
        accept: codes of errors that the user has looked into and takes as advisories.

    Raises:
        StackError: the stack has no such variant.
        OutriderError: a code to accept does not exist.
    """
    if unknown := sorted(set(accept) - KINDS.keys()):
        raise OutriderError(
            f"there is no finding {unknown[0]}{did_you_mean(unknown[0], KINDS)}", next_step="see docs/findings/"
        )
    began = time.monotonic()
    names = (variant,) if variant is not None else tuple(stack.variants)
    for name in names:
        stack.variant(name)
    target = _read_target(stack, model_dir, remote=remote)
    shape = _shape(target)
    findings = [
        *check_files(target),
        *check_target_tensors(target, shape),
        *check_node(stack, node, mla=bool(shape and shape.mla)),
    ]
    weights = grouped(target.tensors) if target.tensors is not None else None
    read = _Drafters(drafter_dir, remote=remote)
    figures: list[MemoryFigures] = []
    for name in names:
        spec = stack.variant(name).speculation
        drafter = read.of(name, spec.drafter) if spec and spec.drafter else None
        engine = stack.engine_of(name)
        served = stack.model_copy(update={"engine": engine})
        case = Case(
            stack=served,
            name=name,
            table=engine_table(engine.name, engine.version),
            target=target,
            shape=shape,
            runner=model_runner(served, name),
            drafter=drafter,
            view=_view(drafter, spec),
            weights=weights,
        )
        # Memory is estimated with vLLM's allocator and graphs in mind: nothing is said of another engine's.
        memory_findings, memory = check_memory(case) if engine.name == "vllm" else ([], None)
        of_variant = [*_findings(case), *_own_drafter(case, read.directory(name)), *memory_findings]
        if running is not None:
            of_variant += check_running(case, running, memory)
        findings += [finding.model_copy(update={"variant": name}) for finding in of_variant]
        figures += [memory] if memory is not None else []
    return PreflightReport(
        schema=1,
        stack=stack.name,
        stack_digest=stack.digest(),
        engine=f"{stack.engine.name} {stack.engine.version} ({stack.engine.build})",
        variants=names,
        findings=in_order(accepted(findings, accept)),
        memory=tuple(figures),
        seconds=round(time.monotonic() - began, 3),
    )


def _findings(case: Case) -> list[Finding]:
    speculation = check_speculation if case.stack.engine.name == "vllm" else check_other_engine
    found_here = [
        *check_target(case),
        *check_flags(case),
        *check_endpoints(case),
        *check_tokenizer(case),
        *check_drafter(case),
        *speculation(case),
        *check_budget(case),
        *check_graphs(case),
    ]
    if case.drafter is not None:
        found_here += check_files(case.drafter)
    elif case.spec is not None and case.spec.drafter is not None:
        found_here.append(found("FILE008", case.place("speculation.drafter"), case.spec.drafter.model))
    return found_here


def _own_drafter(case: Case, directory: Path | None) -> list[Finding]:
    """Whether a drafter that lies in the project is whole."""
    drafter = case.spec.drafter if case.spec is not None else None
    if drafter is None or not drafter.is_local or directory is None:
        return []
    faults = drafter_faults(directory)
    return [found("FILE009", case.place("speculation.drafter"), f"{directory}: {'; '.join(faults)}")] if faults else []


def _read_target(stack: Stack, directory: Path | None, *, remote: bool) -> Checkpoint:
    if directory is not None:
        return read_checkpoint(LocalFiles(directory))
    if remote and stack.target.source is None:
        with RemoteFiles(stack.target.model, stack.target.revision) as files:
            return read_checkpoint(files)
    known = reference(stack.target.model)
    return known or Checkpoint(label=stack.target.model, config=None, from_reference=True)


def _shape(target: Checkpoint) -> Shape | None:
    try:
        return shape_of(target.config) if target.config is not None else None
    except ShapeError:
        return None


def _view(drafter: Checkpoint | None, spec: Speculation | None) -> DrafterView | None:
    if drafter is None or drafter.config is None or spec is None:
        return None
    return view_drafter(drafter.config, spec.method)


class _Drafters:
    """Reads each drafter once, however many variants share it."""

    def __init__(self, directories: Path | Mapping[str, Path] | None, *, remote: bool) -> None:
        self._directories = directories
        self._remote = remote
        self._read: dict[tuple[str, str | None], Checkpoint] = {}

    def of(self, variant: str, drafter: Drafter) -> Checkpoint | None:
        """The drafter's files; None if they are neither here nor may be looked at elsewhere."""
        directory = self.directory(variant)
        key = (str(directory) if directory else drafter.model, drafter.revision)
        if key not in self._read:
            if directory is not None:
                self._read[key] = read_checkpoint(LocalFiles(directory), tables=True)
            elif self._remote and not drafter.is_local:
                with RemoteFiles(drafter.model, drafter.revision) as files:
                    self._read[key] = read_checkpoint(files, tables=True)
        return self._read.get(key)

    def directory(self, variant: str) -> Path | None:
        """Where the drafter's files are or should be."""
        if isinstance(self._directories, Mapping):
            return self._directories.get(variant)
        return self._directories
