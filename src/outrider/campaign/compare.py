"""What the cells of a run say: one figure with its interval a variant, workload and concurrency."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from outrider.campaign.cell import MEASURED
from outrider.campaign.stats import Interval, bootstrap_interval, paired_speedup
from outrider.load.outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from outrider.campaign.cell import Cell
    from outrider.load.result import Finding

_WORST = ("ok", "flagged", "invalid", "failed")


@dataclass(frozen=True, slots=True)
class Point:
    """One variant under one workload at one concurrency, over all repeats.

    Attributes:
        variant, workload, concurrency, k: what was measured.
        status: the worst of its cells.
        cells: how many cells stand behind it.
        tpot_s: mean time per output token of a request, with its interval; None without a measurement.
        ttft_s: mean time to first token, likewise.
        throughput_tok_s: mean over cells, output tokens per second of all users.
        tokens_per_step: from the engine's counters, weighted by decoded tokens.
        al: acceptance length; None if nothing was drafted.
        accepted_per_pos: unconditional acceptance by draft position.
        speedup: baseline's TPOT / this TPOT on the same prompts, with its interval over prompts and repeats; None for
            baseline or without pairs.
        findings: of all its cells, once each.
        errors: why cells failed.
    """

    variant: str
    workload: str
    concurrency: int
    k: int
    status: str
    cells: int
    tpot_s: Interval | None
    ttft_s: Interval | None
    throughput_tok_s: float | None
    tokens_per_step: float | None
    al: float | None
    accepted_per_pos: tuple[float, ...]
    speedup: Interval | None
    findings: tuple[Finding, ...]
    errors: tuple[str, ...]

    @property
    def usable(self) -> bool:
        """Whether its figures may enter a decision."""
        return self.status in {"ok", "flagged"} and self.tpot_s is not None

    @property
    def step_cost_ratio(self) -> float | None:
        """Time of a speculative step / time of a plain one: tokens per step / speedup."""
        if self.speedup is None or self.tokens_per_step is None:
            return None
        return self.tokens_per_step / self.speedup.mid


def compare(cells: Sequence[Cell], requests: pl.DataFrame) -> list[Point]:
    """Points in the order of workload, concurrency, and first appearance of the variant.

    Args:
        cells: of one stack.
        requests: rows as `RunStore.requests` gives them.
    """
    groups: dict[tuple[str, int, str], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.workload, cell.concurrency, cell.variant), []).append(cell)
    variants = list(dict.fromkeys(cell.variant for cell in cells))
    workloads = list(dict.fromkeys(cell.workload for cell in cells))
    ordered = sorted(groups, key=lambda g: (workloads.index(g[0]), g[1], variants.index(g[2])))
    rows = _usable_rows(requests)
    return [_point(key, groups[key], rows) for key in ordered]


def ratio_of(requests: pl.DataFrame, base: Point, other: Point) -> Interval | None:
    """Speed of one point over another's on the prompts that both answered in the same repeats; None without two.

    Args:
        requests: rows as `RunStore.requests` gives them.
        base: what is compared with.
        other: of the same workload and concurrency.
    """
    here = _usable_rows(requests).filter(
        (pl.col("workload") == base.workload) & (pl.col("concurrency") == base.concurrency)
    )
    one, two = (_by_prompt(here.filter(pl.col("variant") == p.variant)) for p in (base, other))
    return _paired(one, two) if len(one.keys() & two.keys()) > 1 else None


def _usable_rows(requests: pl.DataFrame) -> pl.DataFrame:
    ended_well = pl.col("outcome").is_in([outcome.value for outcome in Outcome if outcome.ok])
    return requests.filter((pl.col("phase") == "measured") & ended_well & pl.col("tpot_s").is_not_null())


def _point(key: tuple[str, int, str], cells: list[Cell], rows: pl.DataFrame) -> Point:
    workload, concurrency, variant = key
    measured = [cell for cell in cells if cell.status in MEASURED and cell.load]
    here = rows.filter((pl.col("workload") == workload) & (pl.col("concurrency") == concurrency))
    own = here.filter(pl.col("variant") == variant)
    speedup = None
    if variant != "baseline":
        base, other = _by_prompt(here.filter(pl.col("variant") == "baseline")), _by_prompt(own)
        if len(base.keys() & other.keys()) > 1:
            speedup = _paired(base, other)
    return Point(
        variant=variant,
        workload=workload,
        concurrency=concurrency,
        k=cells[0].k,
        status=_WORST[max(_WORST.index(cell.status) for cell in cells)],
        cells=len(cells),
        tpot_s=_mean_interval(own["tpot_s"]),
        ttft_s=_mean_interval(own["ttft_s"]),
        throughput_tok_s=_mean(cell.load.throughput_tok_s for cell in measured if cell.load),
        tokens_per_step=_weighted_tokens_per_step(measured),
        al=_pooled_al(measured),
        accepted_per_pos=_pooled_positions(measured),
        speedup=speedup,
        findings=tuple({(f.code, f.evidence): f for cell in cells for f in cell.validity}.values()),
        errors=tuple(cell.error for cell in cells if cell.error),
    )


def _by_prompt(rows: pl.DataFrame) -> dict[tuple[int, str], float]:
    """Mean TPOT by (repeat, prompt), in seconds; a prompt asked twice in a cell counts once."""
    means = rows.group_by("repeat", "prompt_id").agg(pl.col("tpot_s").mean())
    return {(repeat, prompt): tpot for repeat, prompt, tpot in means.iter_rows()}


def _paired(base: dict[tuple[int, str], float], other: dict[tuple[int, str], float]) -> Interval:
    return paired_speedup(base, other, repeat_of=lambda key: key[0])


def _mean_interval(values: pl.Series) -> Interval | None:
    numbers = values.drop_nulls().to_numpy()
    return bootstrap_interval(numbers) if len(numbers) > 1 else None


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else None


def _weighted_tokens_per_step(cells: list[Cell]) -> float | None:
    # Steps are decoded / tokens per step; pooling the counters pools the steps.
    decoded = steps = 0.0
    for cell in cells:
        engine = cell.load.engine if cell.load else None
        if engine and engine.tokens_per_step and engine.generation_tokens and engine.first_tokens is not None:
            own = engine.generation_tokens - engine.first_tokens
            decoded += own
            steps += own / engine.tokens_per_step
    return decoded / steps if steps else None


def _pooled_al(cells: list[Cell]) -> float | None:
    pairs = [(c.load.engine.drafts, c.load.engine.accepted_tokens) for c in cells if c.load and c.load.engine]
    drafts = math.fsum(d for d, _ in pairs if d)
    return 1 + math.fsum(a for d, a in pairs if d and a) / drafts if drafts else None


def _pooled_positions(cells: list[Cell]) -> tuple[float, ...]:
    weighted = [(c.load.engine.drafts, c.accepted_per_pos) for c in cells if c.load and c.load.engine]
    known = [(drafts, positions) for drafts, positions in weighted if drafts and positions]
    drafts = math.fsum(d for d, _ in known)
    width = max((len(p) for _, p in known), default=0)
    return tuple(math.fsum(d * p[i] for d, p in known if i < len(p)) / drafts for i in range(width))
