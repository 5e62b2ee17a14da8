"""`outrider tune`."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from outrider.campaign.commands import conclude
from outrider.campaign.compare import compare
from outrider.campaign.plan import CampaignPlan
from outrider.campaign.run import run_campaign
from outrider.campaign.store import RunStore
from outrider.campaign.view import CampaignView
from outrider.decide.overlay import write_overlay
from outrider.runtime.local import LocalRuntime
from outrider.runtime.signals import unwinding_on_signals
from outrider.stack import find_stack
from outrider.state import results_dir, state_dir
from outrider.tune.axes import judge, tuned_stack, tuning_stack


def tune_command(
    stack: Annotated[str, typer.Argument(help="Name of a shipped stack, or a YAML file.")],
    axis: Annotated[str, typer.Option(help="graphs, runner, attention or nccl.")],
    run: Annotated[str | None, typer.Option(help="Name of the run; an existing one is resumed.")] = None,
    workloads: Annotated[list[str] | None, typer.Option("--workload", help="Only these; may be repeated.")] = None,
    concurrency: Annotated[list[int] | None, typer.Option("--concurrency", min=1, help="May be repeated.")] = None,
    requests: Annotated[int | None, typer.Option(min=2, help="Measured requests a cell at one user.")] = None,
    max_tokens: Annotated[int | None, typer.Option(min=2, help="Output limit of each request.")] = None,
    emit: Annotated[Path | None, typer.Option(help="Write the stack with what was kept; the stem is its name.")] = None,
    plan_only: Annotated[bool, typer.Option("--plan", help="Print the alternatives and start nothing.")] = False,
    json_to: Annotated[
        str | None, typer.Option("--json", metavar="PATH", help="Write the result as JSON; - is standard output.")
    ] = None,
) -> None:
    """Measure declared alternatives of flags and environment beside the stack's own, paired; keep what is better."""
    chosen = find_stack(stack)
    tuning = tuning_stack(chosen, axis)
    console = Console(stderr=json_to == "-", highlight=False)
    if plan_only:
        for name, variant in tuning.variants.items():
            console.print(f"{name}: {variant.description} {dict(variant.flags) or ''} {dict(variant.env) or ''}")
        return
    plan = CampaignPlan.for_stack(
        tuning,
        workloads=workloads or (),
        concurrency=concurrency or (),
        requests=requests,
        max_tokens=max_tokens,
    )
    store = RunStore(results_dir() / (run or f"{chosen.name}-{axis}-{datetime.now(UTC):%Y%m%d-%H%M%S}"))
    with unwinding_on_signals(), CampaignView(console) as view:
        run_campaign(tuning, plan, store, LocalRuntime(state_dir()), view)
    code = conclude(tuning, store, console, None)
    kept = judge(compare(store.cells(), store.requests()))
    console.print(kept.why, soft_wrap=True)
    if emit and kept.name is not None:
        console.print(str(write_overlay(emit, tuned_stack(chosen, axis, kept, emit.stem))), soft_wrap=True)
    if json_to:
        text = json.dumps({"stack": chosen.name, "axis": axis, "run": store.directory.name, **asdict(kept)}, indent=2)
        if json_to == "-":
            sys.stdout.write(text + "\n")
        else:
            Path(json_to).write_text(text + "\n", encoding="utf-8")
    raise typer.Exit(code)
