"""A load test's result for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from rich.console import Console

    from outrider.load.result import Finding, Latency, LoadResult, Progress

_COLOUR = {"ok": "green", "flagged": "yellow", "invalid": "red", "info": "cyan"}


def print_summary(result: LoadResult, console: Console) -> None:
    """Latencies, counts, and every reason for doubt."""
    load = f"{result.arrivals} arrivals" + (f" at {result.rate:g} requests/s" if result.rate else "")
    if result.concurrency is not None:
        load = f"concurrency {result.concurrency}"
    console.print(
        f"[bold]{escape(result.model)}[/bold], {load}: [{_COLOUR[result.status]}]{result.status}[/], "
        f"{result.requests} requests in {result.window_s:.1f} s"
    )
    console.print(_latencies(result))
    if result.throughput_tok_s is not None:
        per_chunk = f", {result.tokens_per_chunk:.2f} tokens a chunk" if result.tokens_per_chunk else ""
        console.print(f"{result.throughput_tok_s:.1f} tokens/s{per_chunk} (token counts: {result.token_source})")
    counts = ", ".join(f"{n} {name}" for name, n in result.outcomes.items())
    console.print(f"outcomes: {counts or 'none'}")
    engine = result.engine
    if engine is not None and engine.tokens_per_step is not None:
        al = f", acceptance length {engine.al:.2f}" if engine.al is not None else ""
        console.print(f"engine: {engine.tokens_per_step:.2f} tokens a step{al}")
    for finding in result.validity:
        print_finding(finding, console)


def print_finding(finding: Finding, console: Console) -> None:
    """One finding, its evidence and what to do."""
    console.print(f"[{_COLOUR[finding.severity]}]{finding.severity}[/] {finding.code}: ", end="", highlight=False)
    console.print(finding.evidence, markup=False, highlight=False)
    if finding.fix:
        console.print(f"  next: {finding.fix}", markup=False, highlight=False)


def progress_line(progress: Progress) -> str:
    """One line of a test under way."""
    tpot = f", TPOT p50 {progress.tpot_p50_s * 1e3:.1f} ms" if progress.tpot_p50_s is not None else ""
    failed = f", {progress.failed} failed" if progress.failed else ""
    return (
        f"{progress.phase} {progress.elapsed_s:.0f} s: {progress.measured} measured, "
        f"{progress.in_flight} in flight{failed}, {progress.tokens_s:.0f} tokens/s{tpot}"
    )


def _latencies(result: LoadResult) -> Table:
    table = Table("ms", "mean", "p50", "p90", "p95", "p99", box=None)
    for name, latency in (
        ("TTFT", result.ttft_s),
        ("TPOT", result.tpot_s),
        ("ICL", result.icl_s),
        ("E2E", result.e2e_s),
    ):
        table.add_row(name, *_milliseconds(latency))
    return table


def _milliseconds(latency: Latency) -> list[str]:
    values = (latency.mean, latency.p50, latency.p90, latency.p95, latency.p99)
    return ["-" if value is None else f"{value * 1e3:.2f}" for value in values]
