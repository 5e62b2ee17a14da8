"""`outrider parity`: did speculation leave the answers' quality alone?"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from outrider.campaign.engines import Engines
from outrider.campaign.parity import collect_answers, compare_answers
from outrider.campaign.parity_result import ParityPlan
from outrider.runtime.local import LocalRuntime
from outrider.runtime.signals import unwinding_on_signals
from outrider.stack import find_stack
from outrider.state import state_dir


def parity_command(
    stack: Annotated[str, typer.Argument(help="Name of a shipped stack, or a YAML file.")],
    a: Annotated[str, typer.Argument(help="The variant to hold against, usually baseline.")],
    b: Annotated[str, typer.Argument(help="The variant in question.")],
    prompts: Annotated[int | None, typer.Option(min=1, help="Prompts of each workload for the agreement.")] = None,
    seed: Annotated[int, typer.Option(help="Of the prompts.")] = 0,
    json_to: Annotated[
        str | None, typer.Option("--json", metavar="PATH", help="Write the result as JSON; - is standard output.")
    ] = None,
) -> None:
    """Compare two variants' greedy answers and their accuracy. Exit 0 equivalent, 1 worse, 3 not decided."""
    chosen = find_stack(stack)
    for name in (a, b):
        chosen.variant(name)
    plan = ParityPlan(seed=seed) if prompts is None else ParityPlan(seed=seed, prompts_each=prompts)
    console = Console(stderr=json_to == "-", highlight=False)
    bars = Bars(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), console=console
    )
    with unwinding_on_signals(), bars, Engines(chosen, LocalRuntime(state_dir()), side_by_side=False) as engines:
        answers = {}
        for name in (a, b):
            task = bars.add_task(f"starting {name}", total=None)
            url = engines.get(name).running.url
            bars.update(task, description=name)

            def show(done: int, total: int, task: TaskID = task) -> None:
                bars.update(task, completed=done, total=total)

            answers[name] = asyncio.run(
                collect_answers(url, chosen.target.served_name, plan, again=name == a, progress=show)
            )
    result = compare_answers(answers[a], answers[b], chosen.target.served_name, plan, names=(a, b))
    console.print(result.summary, soft_wrap=True)
    for failure in result.failures:
        console.print(f"[yellow]no answer[/] {failure}", soft_wrap=True)
    if json_to:
        text = result.model_dump_json(indent=2, by_alias=True) + "\n"
        if json_to == "-":
            sys.stdout.write(text)
        else:
            Path(json_to).write_text(text, encoding="utf-8")
    raise typer.Exit({"equivalent": 0, "higher": 0, "lower": 1}.get(result.verdict, 3))
