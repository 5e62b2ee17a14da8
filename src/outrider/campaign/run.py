"""Measures the cells of a plan and keeps them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

from outrider.campaign import provenance
from outrider.campaign.bystanders import Bystanders
from outrider.campaign.cell import MEASURED, Cell, CellKey, Provenance
from outrider.campaign.early import settled
from outrider.campaign.engines import Engines, Served
from outrider.campaign.plan import CampaignPlan
from outrider.engine import adapter_of
from outrider.errors import CampaignError, LoadError, OutriderError, RunsAlreadyError
from outrider.load import LoadPlan, run_load
from outrider.load.outcome import Outcome
from outrider.load.plan import Closed, Labels

if TYPE_CHECKING:
    from outrider.campaign.store import RunStore
    from outrider.load.result import Finding, LoadOutcome, LoadResult, RequestRecord
    from outrider.load.result import Progress as LoadProgress
    from outrider.runtime.base import Progress as StartProgress
    from outrider.runtime.base import Runtime
    from outrider.stack import Stack

# The last user of a wave waits until the prompts of all others are read: half a million tokens, at worst.
_READING_S = 600.0


class Watcher(Protocol):
    """Whoever shows a campaign's progress."""

    def begins(self, keys: list[CellKey], done: int) -> None:
        """Cells that are left to measure, and how many were measured before."""

    def engine_starts(self, variant: str, progress: StartProgress) -> None:
        """An engine is starting; called about once a second."""

    def engine_ready(self, variant: str) -> None:
        """An engine answers."""

    def cell_begins(self, key: CellKey, requests: int) -> None:
        """A cell's load is about to start."""

    def cell_progress(self, _key: CellKey, progress: LoadProgress) -> None:
        """A cell's load goes on."""

    def cell_ends(self, cell: Cell) -> None:
        """A cell has been kept."""


@dataclass(frozen=True, slots=True)
class CampaignOutcome:
    """What a campaign came to.

    Attributes:
        measured: cells with a result in this call.
        failed: cells without one, with the reason.
        reused: cells that an earlier call had measured.
        skipped: repeats that were not needed, because their place is known to the plan's precision.
    """

    measured: tuple[Cell, ...]
    failed: tuple[Cell, ...]
    reused: int
    skipped: int = 0


Chooser = Callable[[Sequence[Cell]], list[CellKey]]


def run_campaign(
    stack: Stack,
    plan: CampaignPlan,
    store: RunStore,
    runtime: Runtime,
    watcher: Watcher,
    *,
    chooser: Chooser | None = None,
    live: bool = False,
) -> CampaignOutcome:
    """Measure what is left of a plan.

    With `live` the load process exports its figures while it measures, and tells Prometheus where.

    With a `chooser` only the cells that it asks for are measured: it sees the cells so far, and ends the campaign by
    asking for none.

    Cells that an earlier call finished are not measured again; failed ones are. An engine that dies fails
    its cell and is started once more; the campaign goes on with the other cells either way.

    Raises:
        CampaignError: the store holds another plan's results, or the disk refused a result.
        RunsAlreadyError: somebody else serves a variant; what was measured is kept.
    """
    _keep_plan(plan, store)
    done = store.done() & set(plan.cells())
    left = _asked(plan, store, chooser, done)
    watcher.begins(left, len(done))
    measured: list[Cell] = []
    failed: list[Cell] = []
    unneeded: set[CellKey] = set()
    try:
        if left:
            with Engines(stack, runtime, side_by_side=plan.co_resident, on_progress=watcher.engine_starts) as engines:
                runner = _Runner(stack, plan, store, engines, watcher, live=live)
                unstarted = engines.start(list(dict.fromkeys(key.variant for key in left)))
                if conflict := next((e for e in unstarted.values() if isinstance(e, RunsAlreadyError)), None):
                    raise conflict
                while left:
                    for key in left:
                        if (
                            plan.precision
                            and key.repeat
                            and settled(key, store.points(), plan.variants, plan.precision)
                        ):
                            unneeded.add(key)
                            continue
                        cell = runner.measure(key, unstarted.get(key.variant))
                        (failed if cell.status == "failed" else measured).append(cell)
                    tried = done | unneeded | {cell.key for cell in (*measured, *failed)}
                    left = _asked(plan, store, chooser, tried) if chooser else []
                    if left:
                        watcher.begins(left, len(tried))
    finally:
        _keep_logs(stack, runtime, store)
        store.merge_requests()
    return CampaignOutcome(tuple(measured), tuple(failed), len(done), len(unneeded))


def _asked(plan: CampaignPlan, store: RunStore, chooser: Chooser | None, tried: set[CellKey]) -> list[CellKey]:
    """Cells to measure now; those that failed in an earlier call come again."""
    if chooser is None:
        return [key for key in plan.cells() if key not in tried]
    cells = store.cells()
    again = [cell.key for cell in cells if cell.status == "failed" and cell.key not in tried]
    return again or [key for key in chooser(cells) if key not in tried]


class _Runner:
    """Measures one cell at a time against engines that are kept up."""

    def __init__(
        self, stack: Stack, plan: CampaignPlan, store: RunStore, engines: Engines, watcher: Watcher, *, live: bool
    ) -> None:
        self._stack = stack
        self._live = live
        self._plan = plan
        self._store = store
        self._engines = engines
        self._watcher = watcher
        gpus, driver = provenance.gpu_facts()
        self._circumstances: dict[str, Any] = {
            "outrider": provenance.outrider_facts(),
            "host": provenance.host_facts(),
            "gpus": gpus,
            "driver": driver,
        }

    def measure(self, key: CellKey, unstarted: OutriderError | None) -> Cell:
        began, started_at = time.monotonic(), datetime.now(UTC).isoformat(timespec="seconds")
        served: Served | None = None
        outcome: LoadOutcome | None = None
        error: Exception | None = unstarted
        busy: Finding | None = None
        if error is None:
            try:
                served = self._engines.get(key.variant)
                self._watcher.engine_ready(key.variant)
                self._watcher.cell_begins(key, self._plan.requests_at(key.concurrency))
                bystanders = Bystanders(self._engines.pids())
                outcome = run_load(
                    self._load_plan(key, served.running.url),
                    on_progress=lambda progress: self._watcher.cell_progress(key, progress),
                )
                # A dead engine explains whatever the client saw, and its figures are no measurement.
                error = self._engines.death(key.variant) or _nothing_measured(outcome.result)
                busy = bystanders.finding()
            except RunsAlreadyError:
                raise  # somebody else serves it: no measurement failed, and no cell that comes could be measured
            except OutriderError as caught:
                error = self._engines.death(key.variant) or caught
        cell = self._cell(key, served, None if error else outcome, error, started_at, time.monotonic() - began)
        if busy and cell.status in MEASURED:
            cell = cell.with_finding(busy)
        records: list[RequestRecord] = outcome.records if outcome and not error else []
        self._store.append(cell, records)
        self._watcher.cell_ends(cell)
        return cell

    def _load_plan(self, key: CellKey, url: str) -> LoadPlan:
        speculation = self._stack.variant(key.variant).speculation
        # Where k changes it may be 0 at this batch: then no draft is no fault.
        changes = speculation is not None and (speculation.auto or speculation.schedule is not None)
        expects_drafts = None if changes else speculation is not None
        distinct = self._plan.distinct_prompts(key)
        long: dict[str, Any] = {"distinct_prompts": distinct, "idle_timeout_s": _READING_S} if distinct else {}
        return LoadPlan(
            url=url,
            model=self._stack.target.served_name,
            workload=key.workload,
            prompt_seed=self._plan.prompt_seed(key),
            arrivals=Closed(concurrency=key.concurrency, waves=self._plan.step_cost),
            requests=self._plan.requests_at(key.concurrency),
            max_tokens=self._plan.max_tokens,
            temperature=1.0 if self._plan.step_cost else 0.0,
            ignore_eos=self._plan.step_cost,
            seed=self._plan.seed,
            # Cells ask the same prompts of the same engine; none may find another's in the prefix cache.
            extra_body=adapter_of(self._stack, key.variant).isolated_cache(f"{self._store.directory.name}/{key.id}"),
            engine=self._stack.engine_of(key.variant).name,
            speculates=expects_drafts,
            labels=Labels(stack=self._stack.name, variant=key.variant, workload=key.workload),
            metrics_port=0 if self._live else None,
            **long,
        )

    def _cell(
        self,
        key: CellKey,
        served: Served | None,
        outcome: LoadOutcome | None,
        error: Exception | None,
        started_at: str,
        wall_s: float,
    ) -> Cell:
        speculation = self._stack.variant(key.variant).speculation
        result = outcome.result if outcome else None
        engine = result.engine if result else None
        return Cell(
            cell_id=key.id,
            run=self._store.directory.name,
            stack=self._stack.name,
            variant=key.variant,
            k=speculation.k if speculation else 0,
            workload=key.workload,
            context_tokens=round(result.prompt_tokens / result.requests) if result and result.requests else None,
            concurrency=key.concurrency,
            repeat=key.repeat,
            started_at=started_at,
            wall_s=round(wall_s, 3),
            tokens_per_step=engine.tokens_per_step if engine else None,
            al=engine.al if engine else None,
            accepted_per_pos=engine.accepted_per_pos if engine else (),
            status=result.status if result else "failed",
            error=None if result else str(error),
            validity=tuple(result.validity) if result else (),
            provenance=self._provenance(key, served),
            load=result,
        )

    def _provenance(self, key: CellKey, served: Served | None) -> Provenance:
        speculation = self._stack.variant(key.variant).speculation
        drafter = speculation.drafter if speculation else None
        chosen = self._stack.engine_of(key.variant)
        engine: dict[str, Any] = {"name": chosen.name, "pinned": chosen.version, "build": chosen.build}
        return Provenance(
            **self._circumstances,
            stack_digest=self._plan.stack_digest,
            engine=engine | (asdict(served.facts) if served else {}),
            argv=served.launch.argv if served else (),
            env=dict(served.launch.env) if served else {},
            drafter=drafter.model if drafter else (speculation.method if speculation else None),
            drafter_revision=drafter.revision if drafter else None,
            seed=self._plan.prompt_seed(key),
        )


def _nothing_measured(result: LoadResult) -> LoadError | None:
    """A load test in which no request ended well is no measurement, and is tried again on resuming."""
    if sum(count for outcome, count in result.outcomes.items() if Outcome(outcome).ok):
        return None
    kinds = ", ".join(f"{count} {Outcome(name).meaning}" for name, count in result.outcomes.items()) or "none was sent"
    texts = [text for errors in result.errors.values() for text in errors]
    return LoadError("no request ended well", evidence=f"{kinds}; {texts[0] if texts else 'no error text'}")


def _keep_plan(plan: CampaignPlan, store: RunStore) -> None:
    file = store.directory / "plan.json"
    if file.is_file():
        kept = CampaignPlan.model_validate_json(file.read_text(encoding="utf-8"))
        if kept.stack_digest != plan.stack_digest:
            raise CampaignError(
                f"run {store.directory.name} was measured with another stack",
                evidence=f"{file}: {kept.stack} {kept.stack_digest}, now {plan.stack} {plan.stack_digest}",
                next_step="give another --run name: cells of different stacks do not compare",
            )
        if any(
            getattr(kept, name) != getattr(plan, name)
            for name in ("step_cost", "rounds", "seed", "max_tokens", "requests")
        ):
            raise CampaignError(
                f"run {store.directory.name} was measured with other requests, output limit, seed or kind",
                evidence=str(file),
                next_step="give the same values, or another --run name",
            )
    scratch = file.with_suffix(".tmp")
    scratch.write_text(plan.model_dump_json(indent=2) + "\n", encoding="utf-8")
    scratch.replace(file)


def _keep_logs(stack: Stack, runtime: Runtime, store: RunStore) -> None:
    for status in runtime.list():
        if status.name.startswith(f"{stack.name}/"):
            text = "".join(f"{line}\n" for line in runtime.log_lines(status.name))
            (store.logs / f"{status.name.split('/', 1)[1]}.log").write_text(text, encoding="utf-8")
