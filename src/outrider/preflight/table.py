"""The report as text for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from rich.console import Console

    from outrider.preflight.report import PreflightReport

_COLOURS = {"error": "bold red", "advisory": "yellow", "info": "cyan"}


def print_report(report: PreflightReport, console: Console) -> None:
    """Print findings, then one line that sums them up."""
    table = Table(
        title=f"preflight {report.stack}: {', '.join(report.variants)}", title_justify="left", show_lines=True
    )
    for heading in ("code", "variant", "what", "seen", "fix"):
        table.add_column(heading, overflow="fold")
    for finding in report.findings:
        colour = _COLOURS[finding.severity]
        table.add_row(
            f"[{colour}]{finding.code}[/]\n{finding.severity}",
            escape(finding.variant or "all"),
            escape(f"{finding.title}\n{finding.where}"),
            escape(finding.evidence),
            "" if finding.severity == "info" else escape(finding.fix),
        )
    if report.findings:
        console.print(table)
    console.print(summary(report), soft_wrap=True)


def summary(report: PreflightReport) -> str:
    """One line: the verdict and the counts."""
    counts = f"{report.count('error')} errors, {report.count('advisory')} advisories, {report.count('info')} notes"
    verdict = {0: "fine", 1: "will not work as it is", 3: "works, with advisories"}[report.exit_code]
    return f"{report.stack} on {report.engine}: {verdict} ({counts}; {report.seconds:.1f} s)"
