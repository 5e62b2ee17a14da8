"""Fills the page: verdict first, then charts, the table of cells, and where everything came from."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from outrider.campaign.quality import unproven
from outrider.decide import choose
from outrider.predict.factors import priors
from outrider.report import figures, outlook_figures

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import plotly.graph_objects as go

    from outrider.campaign.cell import Cell
    from outrider.campaign.compare import Point
    from outrider.campaign.quality import Quality
    from outrider.campaign.stats import DriftReport
    from outrider.decide.adaptive import Verdict
    from outrider.decide.probe import Probe
    from outrider.report.outlook import Outlook
    from outrider.stack import Stack

_CHARTS = (
    ("speedup", "Speedup against baseline", "Baseline's TPOT divided by the variant's, on the same prompts."),
    ("tpot", "Time per output token", "Mean over requests; what one user sees between tokens."),
    ("throughput", "Throughput", "Output tokens per second of all users together."),
    ("acceptance", "Acceptance by draft position", "Accepted drafts at each position / drafting events."),
)
_OUTLOOK_CHARTS = (
    ("map", "Decision map", ""),
    (
        "checked",
        "Predicted beside measured",
        "Each place was predicted by a model fitted without it; bars are its 95 % interval.",
    ),
    (
        "break-even",
        "Break-even",
        "Tokens a step at which speculation equals plain decoding (lines; open marks: predicted), and those it gets.",
    ),
)


@dataclass(frozen=True, slots=True)
class Judged:
    """Verdicts beside the points' own choices.

    Attributes:
        probes: what probes of the stack's schedules came to.
        expected: what an adaptive campaign expects of the whole grid.
        quality: what is known of the answers of variants that are lossy by themselves.
    """

    probes: tuple[Probe, ...] = ()
    expected: tuple[Verdict, ...] = ()
    quality: Mapping[str, Quality] = field(default_factory=dict)


def write_report(
    file: Path,
    *,
    stack: Stack,
    cells: Sequence[Cell],
    points: Sequence[Point],
    drift: DriftReport | None,
    unsteady: bool = False,
    outlook: Outlook | str | None = None,
    title: str = "",
    judged: Judged | None = None,
) -> Path:
    """Write the page, atomically; it needs no network to be read.

    Args:
        file: where to.
        stack: what was measured.
        cells: all of the run's.
        points: `campaign.compare.compare` of them.
        drift: how much baseline itself moved, None if it was measured once only.
        unsteady: it moved so much that readers are warned.
        outlook: decision surface and predictions; a text says why there are none; None leaves them out.
        title: what to call the cells where no run stands behind them.
        judged: what was judged beside the points.
    """
    judged = judged or Judged()
    seen = None if isinstance(outlook, str) else outlook
    palette = figures.colours(_variants(points, seen))
    page = _template().render(
        stack=stack,
        run=cells[0].run if cells else title or file.parent.name,
        began=min((c.started_at for c in cells), default=""),
        ended=max((c.started_at for c in cells), default=""),
        wall_min=sum(c.wall_s for c in cells) / 60,
        choices=choose(points, unproven(judged.quality)),
        quality=judged.quality,
        points=points,
        palette=palette,
        charts=_charts(points),
        outlook=seen,
        no_outlook=outlook if isinstance(outlook, str) else "",
        outlook_charts=_outlook_charts(seen, palette) if seen else [],
        priors=priors(seen.session.fit.machine) if seen else {},
        factors=asdict(seen.session.fit.factors) if seen else {},
        judged=judged,
        cells_kept=len(cells),
        drift=drift,
        unsteady=unsteady,
        failed=[c for c in cells if c.status == "failed"],
        lossy=stack.allow_lossy,
        provenance=_provenance(cells),
        prompt_sets=sorted({(c.workload, c.load.workload_version, c.load.workload_digest) for c in cells if c.load}),
        plotly_js=Markup(get_plotlyjs()),  # noqa: S704 - the library's own file
    )
    scratch = file.with_suffix(f".{os.getpid()}.tmp")
    scratch.write_text(page, encoding="utf-8")
    scratch.replace(file)
    return file


def _template() -> Any:  # jinja2's Template is typed as Any
    environment = Environment(
        loader=PackageLoader("outrider.report", "."), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters["num"] = lambda value, digits=2: "-" if value is None else f"{value:.{digits}f}"
    environment.filters["ms"] = lambda value, digits=1: "-" if value is None else f"{value * 1000:.{digits}f}"
    return environment.get_template("page.html.j2")


def _charts(points: Sequence[Point]) -> list[dict[str, Any]]:
    usable = [p for p in points if p.tpot_s is not None]
    if not usable:
        return []
    palette = figures.colours(list(dict.fromkeys(p.variant for p in usable)))
    drawn = {
        "speedup": figures.speedup(usable, palette) if any(p.speedup for p in usable) else None,
        "tpot": figures.tpot(usable, palette),
        "throughput": figures.throughput(usable, palette),
        "acceptance": figures.acceptance(usable, palette),
    }
    return [
        {"id": name, "title": title, "caption": caption, "json": _script_json(figure)}
        for name, title, caption in _CHARTS
        if (figure := drawn[name]) is not None
    ]


def _variants(points: Sequence[Point], outlook: Outlook | None) -> list[str]:
    predicted = [option.variant for _, option in outlook.options] if outlook else []
    checked = [pair.speculative.variant for pair, _ in outlook.checked] if outlook else []
    return list(dict.fromkeys([*(p.variant for p in points), *predicted, *checked]))


def _outlook_charts(outlook: Outlook, palette: dict[str, str]) -> list[dict[str, Any]]:
    drawn = {
        "map": outlook_figures.decision_map(outlook.rows, palette),
        "checked": outlook_figures.predicted_and_measured(outlook, palette),
        "break-even": outlook_figures.break_even(outlook, palette),
    }
    return [
        {"id": name, "title": title, "caption": caption, "json": _script_json(figure)}
        for name, title, caption in _OUTLOOK_CHARTS
        if (figure := drawn[name]) is not None
    ]


def _script_json(figure: go.Figure) -> Markup:
    # `</` would end the script element early; JSON may escape the slash.
    return Markup(figure.to_json().replace("</", "<\\/"))  # noqa: S704


def _provenance(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """One block a variant: its newest cell that knew its engine."""
    latest: dict[str, Cell] = {}
    for cell in cells:
        if cell.provenance.argv or cell.variant not in latest:
            latest[cell.variant] = cell
    return [{"variant": v, **c.provenance.model_dump(mode="json")} for v, c in latest.items()]
