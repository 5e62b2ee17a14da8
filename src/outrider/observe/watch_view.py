"""How `outrider watch` looks: one box an engine, readable at 80 columns and without colour."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from outrider.observe.live import LOSES, PAYS, Live

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import RenderableType

_BARS = " ▁▂▃▄▅▆▇█"
_WIDTH = 78
_BAR_WIDTH = 24


def view(figures: Sequence[Live], history: Mapping[str, Sequence[float]]) -> RenderableType:
    """All engines.

    Args:
        figures: one an engine.
        history: URL -> values of its curve, oldest first.
    """
    return Group(*(_engine(one, history.get(one.url, ())) for one in figures))


def _engine(one: Live, history: Sequence[float]) -> Panel:
    parts: list[RenderableType] = [Text(one.verdict, style=f"bold {colour(one)}")]
    if history and max(history) > 0:
        parts.append(Text(f"{curve(history)}  {'speedup' if one.speedup else 'tokens/s'}, newest right", style="dim"))
    if one.state == "busy":
        beside = Table.grid(padding=(0, 3))
        beside.add_row(_serving(one), _speculating(one))
        parts += [Text(), beside]
        if one.by_position:
            parts += [Text(), _positions(one)]
    title = f"{one.stack}/{one.variant}  {one.url}"
    return Panel(Group(*parts), title=title, title_align="left", width=_WIDTH, border_style=colour(one))


def colour(one: Live) -> str:
    """Green pays, red loses or does not answer, yellow is neither."""
    if one.state == "no answer":
        return "red"
    if one.state != "busy" or one.speedup is None:
        return "cyan"
    return "green" if one.speedup >= PAYS else "red" if one.speedup <= LOSES else "yellow"


def curve(values: Sequence[float]) -> str:
    """Values as a row of bars from 0 to the largest."""
    top = max(values) or 1.0
    return "".join(_BARS[round(value / top * (len(_BARS) - 1))] for value in values)


def _serving(one: Live) -> Table:
    return _table(
        ("output", _number(one.tokens_s, "{:.0f} tokens/s")),
        ("requests", f"{one.running or 0:.0f} run, {one.waiting or 0:.0f} wait"),
        ("TPOT mean", _ms(one.tpot_mean_s)),
        ("TPOT p50 / p95", _both(one.tpot_p50_s, one.tpot_p95_s)),
        ("TTFT p50", _ms(one.ttft_p50_s)),
        ("KV cache", _share(one.kv_cache_usage)),
        ("preemptions", _number(one.preemptions_s, "{:.2f}/s")),
        ("prefix hits", _share(one.prefix_hits)),
    )


def _speculating(one: Live) -> Table:
    return _table(
        ("baseline TPOT", f"{_ms(one.baseline_tpot_s)}" + (f" at {one.band}" if one.band else "")),
        ("tokens a step", _number(one.tokens_per_step, "{:.2f}")),
        ("step cost", _number(one.step_cost, "{:.2f} plain")),
        ("acceptance length", _number(one.acceptance_length, "{:.2f}")),
        ("breaks even at", _number(one.break_even, "{:.2f}")),
        ("draft waste", _number(one.waste_tokens_s, "{:.0f} tokens/s")),
        ("share wasted", _share(one.waste_share)),
    )


def _positions(one: Live) -> Table:
    table = Table(box=None, padding=(0, 1), show_header=True, header_style="dim")
    for heading in ("position", "accepted", "", "given the one before"):
        table.add_column(heading)
    for position, share in enumerate(one.by_position):
        given = one.by_position_conditional[position] if position < len(one.by_position_conditional) else None
        bar = "█" * round(share * _BAR_WIDTH)
        table.add_row(str(position), f"{share:.0%}", Text(bar, style="green"), _share(given))
    return table


def _table(*rows: tuple[str, str]) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 1))
    table.add_column(style="dim")
    table.add_column(justify="right")
    for name, value in rows:
        table.add_row(name, value)
    return table


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:.1f} ms"


def _both(low: float | None, high: float | None) -> str:
    return "-" if low is None or high is None else f"{low * 1e3:.1f} / {high * 1e3:.1f} ms"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"
