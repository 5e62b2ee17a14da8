"""A campaign in the terminal: progress bars with the time left, then the table."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Self

from rich.box import SIMPLE_HEAD
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from rich.console import Console

    from outrider.campaign.cell import Cell, CellKey
    from outrider.campaign.compare import Point
    from outrider.campaign.quality import Quality
    from outrider.decide import Choice
    from outrider.load.result import Progress as LoadProgress
    from outrider.runtime.base import Progress as StartProgress
    from outrider.stack import Stack

_STATUS = {"ok": "green", "flagged": "yellow", "invalid": "red", "failed": "bold red"}


class CampaignView:
    """Shows a campaign while it runs; satisfies `campaign.run.Watcher`.

    Args:
        console: where to.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bars = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", justify="left"),
            BarColumn(bar_width=28),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        )
        self._total: TaskID | None = None
        self._starts: dict[str, TaskID] = {}
        self._cell: TaskID | None = None
        self._left: list[CellKey] = []
        self._walls: list[float] = []

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()

    def begins(self, keys: list[CellKey], done: int) -> None:
        """Show how much there is to do."""
        self._left = list(keys)
        if done and self._total is None:
            self._console.print(f"{done} cells were measured before and are kept; {len(keys)} are left")
        if keys and self._total is not None:
            self._bars.update(self._total, total=len(keys) + done)
        elif keys:
            self._total = self._bars.add_task("[bold]campaign", total=len(keys) + done, completed=done, note="")

    def engine_starts(self, variant: str, progress: StartProgress) -> None:
        """Show an engine's start, with the time that is probably left."""
        if variant not in self._starts:
            self._starts[variant] = self._bars.add_task(f"starting {variant}", total=1.0, note="")
        left = f"about {progress.eta_s:.0f} s left" if progress.eta_s is not None else ""
        self._bars.update(self._starts[variant], completed=progress.share or 0.0, note=left)

    def engine_ready(self, variant: str) -> None:
        """Replace the bar of a start by a line."""
        task = self._starts.pop(variant, None)
        if task is not None:
            self._console.print(f"{variant} is being served")
            self._bars.remove_task(task)

    def cell_begins(self, key: CellKey, requests: int) -> None:
        """Show the cell that is being measured."""
        self._cell = self._bars.add_task(_title(key), total=requests, note="warming up")

    def cell_progress(self, _key: CellKey, progress: LoadProgress) -> None:
        """Show how many requests have ended."""
        if self._cell is not None:
            note = "warming up" if progress.phase == "warmup" else f"{progress.tokens_s:.0f} tok/s"
            self._bars.update(self._cell, completed=progress.measured, note=note)

    def cell_ends(self, cell: Cell) -> None:
        """Replace the cell's bar by its line, and say how long the rest will take."""
        if self._cell is not None:
            self._bars.remove_task(self._cell)
            self._cell = None
        self._walls.append(cell.wall_s)
        self._left = [key for key in self._left if key != cell.key]
        self._console.print(_line(cell))
        if self._total is not None:
            left_s = statistics.median(self._walls) * len(self._left)
            self._bars.update(self._total, advance=1, note=f"about {_duration(left_s)} left" if self._left else "")


def points_table(points: Sequence[Point], title: str) -> Table:
    """The run's points, one row each; fits 80 columns."""
    table = Table(title=title, title_justify="left", header_style="bold", box=SIMPLE_HEAD, padding=0)
    for column in ("workload", "users", "variant", "TPOT ms", "tok/s", "tok/step", "speedup, 95 %", "status"):
        words = column in {"workload", "variant", "status"}
        table.add_column(column, justify="left" if words else "right", no_wrap=True)
    place = None
    for p in points:
        if place not in {None, (p.workload, p.concurrency)}:
            table.add_section()
        place = (p.workload, p.concurrency)
        table.add_row(
            p.workload,
            str(p.concurrency),
            p.variant,
            f"{p.tpot_s.mid * 1000:.1f}" if p.tpot_s else "-",
            f"{p.throughput_tok_s:.0f}" if p.throughput_tok_s else "-",
            f"{p.tokens_per_step:.2f}" if p.tokens_per_step else "-",
            f"{p.speedup.mid:.2f} {p.speedup.low:.2f}-{p.speedup.high:.2f}" if p.speedup else "",
            f"[{_STATUS[p.status]}]{p.status}[/]",
        )
    return table


def quality_lines(stack: Stack, quality: Mapping[str, Quality], points: Sequence[Point]) -> list[str]:
    """A line for each variant of the table whose speed is bought with its answers: what is known of these."""
    shown = {point.variant for point in points}
    lines = []
    for name, known in quality.items():
        if name in shown:
            advice = f" ({known.advice(stack.name)})" if known.result is None else ""
            lines.append(f"[yellow]{name} is lossy[/]: {known.settings}. [bold]{known.text}[/]{advice}")
    return lines


def findings_text(points: Sequence[Point]) -> str:
    """One line a finding: where, what, and the figures behind it; empty if there is none."""
    lines = [
        f"  {p.workload}, {p.concurrency}, {p.variant}: [bold]{finding.code}[/] {finding.evidence}"
        for p in points
        for finding in p.findings
        if finding.severity != "info"
    ]
    return "\n".join(["[yellow]Reasons for doubt[/]", *lines]) if lines else ""


def choices_text(choices: Sequence[Choice]) -> str:
    """One line a place: what to use, and why."""
    width = max((len(f"{c.workload}, {c.concurrency} users") for c in choices), default=0)
    lines = [
        f"  {f'{c.workload}, {c.concurrency} user' + 's' * (c.concurrency > 1):<{width}}  "
        f"[bold]{c.variant or 'undecided'}[/]  {c.why}"
        for c in choices
    ]
    return "\n".join(["[bold]Use[/]", *lines])


def _title(key: CellKey) -> str:
    users = f"{key.concurrency} user{'s' * (key.concurrency > 1)}"
    return f"{key.workload}, {users}, {key.variant}, repeat {key.repeat + 1}"


def _line(cell: Cell) -> str:
    title = _title(cell.key)
    if cell.load is None:
        return f"[bold red]failed[/] {title}: {(cell.error or '').splitlines()[0]}"
    tpot, rate = cell.load.tpot_s.mean, cell.load.throughput_tok_s
    figures = [f"TPOT {tpot * 1000:.1f} ms" if tpot else "", f"{rate:.1f} tok/s" if rate else ""]
    if cell.tokens_per_step and cell.k:
        figures.append(f"{cell.tokens_per_step:.2f} tokens/step")
    doubts = f" [{_STATUS[cell.status]}]{cell.status}: {', '.join(f.code for f in cell.validity)}[/]"
    return f"{title}: {', '.join(f for f in figures if f)}{doubts if cell.status != 'ok' else ''}"


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
