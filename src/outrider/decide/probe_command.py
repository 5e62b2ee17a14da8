"""`outrider probe`: serve an emitted schedule beside the static variants, and say whether it may carry traffic."""

from __future__ import annotations

import json
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from outrider.campaign.commands import conclude
from outrider.campaign.compare import compare, ratio_of
from outrider.campaign.plan import CampaignPlan
from outrider.campaign.run import run_campaign
from outrider.campaign.store import RunStore
from outrider.campaign.view import CampaignView
from outrider.decide.errors import DecideError
from outrider.decide.probe import Probe, judge_probe, marked
from outrider.runtime.local import LocalRuntime
from outrider.runtime.signals import unwinding_on_signals
from outrider.stack import find_stack
from outrider.state import results_dir, state_dir

if TYPE_CHECKING:
    from outrider.stack import Stack

_EXIT = {"verified": 0, "refused": 1, "undecided": 3}


def probe_command(
    overlay: Annotated[Path, typer.Argument(help="Stack that `outrider decide --emit` wrote.")],
    run: Annotated[str | None, typer.Option(help="Name of the run; an existing one is resumed.")] = None,
    variants: Annotated[
        list[str] | None, typer.Option("--variant", help="Beside the schedules. Default: same drafter, every static k.")
    ] = None,
    workloads: Annotated[list[str] | None, typer.Option("--workload", help="Only these; may be repeated.")] = None,
    concurrency: Annotated[
        list[int] | None, typer.Option("--concurrency", min=1, help="Default: the middle and both ends of every band.")
    ] = None,
    repeats: Annotated[int | None, typer.Option(min=1, help="How often each load is measured.")] = None,
    requests: Annotated[int | None, typer.Option(min=2, help="Measured requests a cell at one user.")] = None,
    max_tokens: Annotated[int | None, typer.Option(min=2, help="Output limit of each request.")] = None,
    json_to: Annotated[
        str | None, typer.Option("--json", metavar="PATH", help="Write the verdict as JSON; - is standard output.")
    ] = None,
) -> None:
    """Serve the emitted schedules beside the static variants, measure, and mark the file: verified, refused, undecided.

    Exit 0 verified, 1 refused, 3 undecided.
    """
    stack = find_stack(str(overlay))
    # A schedule that a variant only starts from is no schedule to hold against a static k.
    scheduled = [n for n, v in stack.variants.items() if (s := v.speculation) and s.schedule and not s.auto]
    # The emitted ones; a stack may hold others, which only show what the dynamic path costs.
    emitted = [name for name in scheduled if name in stack.campaign.variants]
    if not emitted:
        raise DecideError(
            f"{overlay} holds no schedule to probe", next_step="`outrider decide STACK --cells ... --emit NAME.yaml`"
        )
    plan = CampaignPlan.for_stack(
        stack,
        variants=[*variants, *emitted] if variants else (),
        workloads=workloads or (),
        concurrency=concurrency or (),
        repeats=repeats,
        requests=requests,
        max_tokens=max_tokens,
    )
    console = Console(stderr=json_to == "-", highlight=False)
    name = run or f"{stack.name}-probe-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    store = RunStore(results_dir() / name)
    with unwinding_on_signals(), CampaignView(console) as view:
        run_campaign(stack, plan, store, LocalRuntime(state_dir()), view)
    conclude(stack, store, console, None)
    requests_kept = store.requests()
    points = compare(store.cells(), requests_kept)
    judged = judge_probe(stack, points, lambda a, b: ratio_of(requests_kept, a, b), name)
    probes = [probe for probe in judged if probe.variant in emitted]
    _keep(probes, stack, overlay, store.directory / "probe.json", json_to)
    for probe in probes:
        console.print(f"{probe.variant}: [bold]{probe.verdict}[/], {probe.why}", soft_wrap=True)
        for load in probe.loads:
            console.print(f"    {load.told}: {load.verdict}")
    raise typer.Exit(max((_EXIT[p.verdict] for p in probes), key=lambda code: (code == 1, code)))


def _keep(probes: list[Probe], stack: Stack, overlay: Path, file: Path, json_to: str | None) -> None:
    data = {"schema": 1, "stack": stack.name, "stack_digest": stack.digest(), "probes": [p.as_dict() for p in probes]}
    text = json.dumps(data, indent=2) + "\n"
    file.write_text(text, encoding="utf-8")
    if json_to == "-":
        sys.stdout.write(text)
    elif json_to:
        Path(json_to).write_text(text, encoding="utf-8")
    scratch = overlay.with_suffix(f".{os.getpid()}.tmp")
    scratch.write_text(marked(overlay.read_text(encoding="utf-8"), probes), encoding="utf-8")
    scratch.replace(overlay)
