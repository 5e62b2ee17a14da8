"""`outrider campaign` and `outrider report`."""

from __future__ import annotations

import json
import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
import yaml
from rich.console import Console

from outrider.campaign.compare import ratio_of
from outrider.campaign.plan import CampaignPlan
from outrider.campaign.quality import quality_of, unproven
from outrider.campaign.run import run_campaign
from outrider.campaign.stats import DriftReport, drift
from outrider.campaign.step_cost import step_cost_stack
from outrider.campaign.store import RunStore
from outrider.campaign.view import CampaignView, choices_text, findings_text, points_table, quality_lines
from outrider.decide import choose
from outrider.decide.adaptive import AdaptiveCampaign, Verdict, read_verdicts, verdicts_json
from outrider.decide.probe import judge_probe
from outrider.errors import CampaignError, OutriderError
from outrider.predict.observations import read_observations
from outrider.report import Judged, write_report
from outrider.report.outlook import Outlook, outlook_of
from outrider.runtime.choice import Kind, runtime_for
from outrider.runtime.signals import unwinding_on_signals
from outrider.stack import Stack, find_stack
from outrider.state import results_dir

if TYPE_CHECKING:
    from outrider.campaign.cell import Cell
    from outrider.campaign.compare import Point

_STEP_COST_KS = (1, 3, 5, 7)
_LARGE_CHANGE = 0.10
_RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")


def campaign_command(
    stack: Annotated[str, typer.Argument(help="Name of a shipped stack, or a YAML file.")],
    run: Annotated[
        str | None, typer.Option(help="Name of the run; an existing one is resumed. Default: stack and date.")
    ] = None,
    variants: Annotated[list[str] | None, typer.Option("--variant", help="Only these; may be repeated.")] = None,
    workloads: Annotated[list[str] | None, typer.Option("--workload", help="Only these; may be repeated.")] = None,
    concurrency: Annotated[
        list[int] | None, typer.Option("--concurrency", min=1, help="Only these; may be repeated.")
    ] = None,
    repeats: Annotated[int | None, typer.Option(min=1, help="How often the grid is measured.")] = None,
    requests: Annotated[int | None, typer.Option(min=2, help="Measured requests a cell at one user.")] = None,
    max_tokens: Annotated[int | None, typer.Option(min=2, help="Output limit of each request.")] = None,
    seed: Annotated[int, typer.Option(help="Of all prompt orders.")] = 0,
    adaptive: Annotated[
        bool, typer.Option("--adaptive", help="Measure only cells that the decision still hangs on.")
    ] = False,
    share: Annotated[float, typer.Option(min=0.05, max=1.0, help="Of the grid, at most, with --adaptive.")] = 0.4,
    step_cost: Annotated[
        bool, typer.Option("--step-cost", help="Measure step cost by k under synthetic acceptance (GPU engines).")
    ] = False,
    waves: Annotated[
        bool, typer.Option("--waves", help="Measure the stack's own variants as --step-cost does: one wave a batch.")
    ] = False,
    ks: Annotated[list[int] | None, typer.Option("--k", min=1, help="With --step-cost; may be repeated.")] = None,
    precision: Annotated[
        float | None, typer.Option(min=0.001, max=0.999, help="End the repeats of a place once it is known this well.")
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="Export the client's figures to Prometheus while a cell is measured.")
    ] = False,
    plan_only: Annotated[bool, typer.Option("--plan", help="Print the cells in order and start nothing.")] = False,
    json_to: Annotated[
        str | None, typer.Option("--json", metavar="PATH", help="Write the cells as JSON; - is standard output.")
    ] = None,
) -> None:
    """Serve each variant, load it, measure it, and report. Resumes a run of the same name."""
    chosen = step_cost_stack(find_stack(stack), ks or _STEP_COST_KS) if step_cost else find_stack(stack)
    plan = CampaignPlan.for_stack(
        chosen,
        variants=variants or (),
        workloads=workloads or (),
        concurrency=concurrency or (),
        repeats=repeats,
        requests=requests,
        max_tokens=max_tokens,
        seed=seed,
        precision=precision,
        step_cost=step_cost or waves,
    )
    console = Console(stderr=json_to == "-", highlight=False)
    if adaptive and (lossy := [name for name in plan.variants if chosen.variant(name).expert_budget]):
        raise CampaignError(
            f"an adaptive campaign decides by speed, and {', '.join(lossy)} must not be chosen by speed alone",
            evidence=f"stack {chosen.name}: an expert budget changes answers",
            next_step="leave it out (--variant), or measure it in a campaign that is not adaptive",
        )
    if plan_only:
        _print_plan(plan, console, json_to)
        return
    store = RunStore(_run_directory(run or f"{chosen.name}-{datetime.now(UTC):%Y%m%d-%H%M%S}", must_exist=False))
    if step_cost:
        # Its cells carry this stack's hash, so it is kept beside them.
        kept = yaml.safe_dump(chosen.model_dump(mode="json", by_alias=True), sort_keys=False)
        (store.directory / f"{chosen.name}.yaml").write_text(kept, encoding="utf-8")
    console.print(f"run [bold]{store.directory.name}[/], stack {chosen.name}: {chosen.title}")
    with unwinding_on_signals(), CampaignView(console) as view:
        picked = AdaptiveCampaign(chosen, plan, share=share) if adaptive else None
        outcome = run_campaign(
            chosen,
            plan,
            store,
            runtime_for(Kind.LOCAL, chosen),
            view,
            chooser=picked.choose if picked else None,
            live=live,
        )
    if outcome.skipped:
        console.print(f"{outcome.skipped} repeats were not needed: their places are known to {precision:.1%}")
    if picked:
        text = json.dumps(verdicts_json(picked.verdicts(store.cells())), indent=2)
        (store.directory / "adaptive.json").write_text(text + "\n", encoding="utf-8")
    raise typer.Exit(conclude(chosen, store, console, json_to))


def report_command(
    run: Annotated[str, typer.Argument(help="Name or directory of a run.")],
    stack: Annotated[str | None, typer.Option(help="The stack's file, if it is not a shipped one.")] = None,
    json_to: Annotated[
        str | None, typer.Option("--json", metavar="PATH", help="Write the cells as JSON; - is standard output.")
    ] = None,
) -> None:
    """Print a run's table and write its report.html anew from what was measured."""
    store = RunStore(_run_directory(run, must_exist=True))
    plan_file = store.directory / "plan.json"
    if not plan_file.is_file():
        raise CampaignError(f"{store.directory} is no run", evidence="it has no plan.json", next_step="name a run")
    plan = CampaignPlan.model_validate_json(plan_file.read_text(encoding="utf-8"))
    chosen = find_stack(stack or plan.stack)
    if chosen.digest() != plan.stack_digest:
        raise CampaignError(
            f"the run's cells belong to another state of stack {plan.stack}",
            evidence=f"measured with {plan.stack_digest}, {chosen.name} is {chosen.digest()} now",
            next_step="check out the stack as it was measured, or measure anew",
        )
    raise typer.Exit(conclude(chosen, store, Console(stderr=json_to == "-", highlight=False), json_to))


def conclude(stack: Stack, store: RunStore, console: Console, json_to: str | None) -> int:
    """Table, choices, report.html; the exit code: 1 if cells failed, 3 if some are in doubt, else 0."""
    cells = store.cells()
    points = store.points()
    console.print()
    console.print(points_table(points, f"{stack.name}, run {store.directory.name}"))
    quality = quality_of(stack, store.directory)
    for line in quality_lines(stack, quality, points):
        console.print(line, soft_wrap=True)
    console.print(choices_text(choose(points, unproven(quality))), soft_wrap=True)
    if doubts := findings_text(points):
        console.print(doubts, soft_wrap=True)
    expected = read_verdicts(store.directory / "adaptive.json")
    _show_expected(expected, cells, console)
    requests = store.requests()
    probes = judge_probe(stack, points, lambda a, b: ratio_of(requests, a, b), store.directory.name)
    moved = drift_of(cells)
    shaky = moved is not None and unsteady(moved)
    if moved:
        console.print(f"[{'yellow' if shaky else 'dim'}]{moved.summary}[/]")
    page = write_report(
        store.directory / "report.html",
        stack=stack,
        cells=cells,
        points=points,
        drift=moved,
        unsteady=shaky,
        outlook=_outlook(stack, store, points),
        judged=Judged(tuple(probes), tuple(expected), quality),
    )
    console.print(f"\n{store.cells_file}\n{store.merge_requests()}\n{page}", soft_wrap=True)
    if json_to:
        _write_json(cells, json_to)
    failed = [cell for cell in cells if cell.status == "failed"]
    for cell in failed:
        console.print(f"[bold red]{cell.cell_id} failed[/]: {cell.error}", soft_wrap=True)
    return 1 if failed else 3 if _in_doubt(points) or shaky else 0


def _show_expected(expected: list[Verdict], cells: list[Cell], console: Console) -> None:
    if expected:
        console.print(
            f"\nExpected of the whole grid, from {len(cells)} of its cells, each weighed against all others",
            soft_wrap=True,
        )
    for verdict in expected:
        console.print(f"  {verdict.told}", soft_wrap=True)


def _outlook(stack: Stack, store: RunStore, points: list[Point]) -> Outlook | str:
    """Decision surface and predictions, or why there are none: a report without them is still a report."""
    paired = {(p.workload, p.variant, p.concurrency): p.speedup for p in points if p.speedup and p.usable}
    try:
        return outlook_of(stack, read_observations(store.cells_file, stack), paired)
    except OutriderError as error:
        return str(error)


def drift_of(cells: list[Cell]) -> DriftReport | None:
    """How baseline moved from repeat to repeat; None if no place of the grid was measured twice.

    Repeats ask other prompts, so places (workload, concurrency) are paired, not prompts: plain decoding
    takes the same time for any of them.
    """
    repeats: dict[int, dict[tuple[str, int], float]] = {}
    for cell in cells:
        if cell.variant == "baseline" and cell.load and cell.load.tpot_s.mean:
            repeats.setdefault(cell.repeat, {})[cell.workload, cell.concurrency] = cell.load.tpot_s.mean
    common = set.intersection(*(set(places) for places in repeats.values())) if len(repeats) > 1 else set()
    if not common:
        return None
    ordered = [repeats[r] for r in sorted(repeats)]
    return drift([{place: places[place] for place in common} for places in ordered])


def unsteady(moved: DriftReport) -> bool:
    """Whether readers must be warned: a proven drift, or a change so large that its interval excuses nothing."""
    return moved.drifted or abs(moved.relative_change) > _LARGE_CHANGE


def _in_doubt(points: list[Point]) -> bool:
    return any(point.status in {"flagged", "invalid"} for point in points)


def _run_directory(run: str, *, must_exist: bool) -> Path:
    if "/" in run and Path(run).is_dir():
        return Path(run)
    if not _RUN_NAME.fullmatch(run):
        raise CampaignError(
            f"{run!r} is no name for a run", next_step="letters, digits, dot, dash and underscore, at most 80"
        )
    directory = results_dir() / run
    if must_exist and not directory.is_dir():
        known = sorted(p.name for p in results_dir().glob("*/")) if results_dir().is_dir() else []
        raise CampaignError(
            f"there is no run {run!r}", evidence=str(results_dir()), next_step=f"one of: {', '.join(known) or '-'}"
        )
    return directory


def _print_plan(plan: CampaignPlan, console: Console, json_to: str | None) -> None:
    keys = plan.cells()
    how = "side by side" if plan.co_resident else "one at a time"
    console.print(f"{len(keys)} cells; engines {how}: {', '.join(plan.variants)}")
    for number, key in enumerate(keys, start=1):
        console.print(f"{number:4}  {key.id}  {plan.requests_at(key.concurrency)} requests")
    if json_to:
        _write_text(plan.model_dump_json(indent=2), json_to)


def _write_json(cells: list[Cell], json_to: str) -> None:
    _write_text(json.dumps([cell.to_json() for cell in cells], indent=2), json_to)


def _write_text(text: str, json_to: str) -> None:
    if json_to == "-":
        sys.stdout.write(text + "\n")
    else:
        Path(json_to).write_text(text + "\n", encoding="utf-8")
