"""What recorded cells say by workload and concurrency band: the reference that live figures are held against."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from outrider.campaign.cell import MEASURED, Cell
from outrider.errors import OutriderError
from outrider.observe.bands import BOUNDS, band_name, band_of
from outrider.predict.observations import read_observations
from outrider.predict.session import open_session
from outrider.predict.surface import Wanted, predict
from outrider.runtime.canary import derived_floor

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from outrider.stack import Stack

BASELINE = "baseline"


@dataclass(frozen=True, slots=True)
class Place:
    """Where something was measured."""

    variant: str
    workload: str
    band: str


@dataclass(frozen=True, slots=True)
class Figures:
    """Means over the usable cells of a place; None where no cell has the figure.

    Attributes:
        tpot_s: mean time per output token of a request, in seconds.
        throughput_tok_s: output tokens per second of all users.
        tokens_per_step: of the engine's counters.
    """

    tpot_s: float | None
    throughput_tok_s: float | None
    tokens_per_step: float | None


@dataclass(frozen=True, slots=True)
class Ended:
    """A cell as a moment.

    Attributes:
        cell_id: unique within its run.
        variant, workload, concurrency, status: of the cell.
        at: Unix seconds at which it ended.
    """

    cell_id: str
    variant: str
    workload: str
    concurrency: int
    status: str
    at: float


@dataclass(frozen=True, slots=True)
class Recorded:
    """Everything that is published of one stack."""

    stack: str
    places: dict[Place, Figures]
    predicted_tpot_s: dict[Place, float]
    ended: tuple[Ended, ...]
    k: dict[str, int]
    schedule: dict[tuple[str, str], int]
    floors: dict[str, float]


def read_cells(file: Path, stack: Stack) -> list[Cell]:
    """Cells of one state of a stack, of each the last line; a line that is being written is left for the next reading.

    Unlike `RunStore` it never writes: the campaign may be running.

    Raises:
        OutriderError: a line is no cell of this schema.
    """
    latest: dict[str, Cell] = {}
    whole, _, _ = file.read_text(encoding="utf-8").rpartition("\n")
    for number, line in enumerate(whole.splitlines(), start=1):
        flat = json.loads(line)
        if flat.get("provenance", {}).get("stack_digest") == stack.digest():
            cell = Cell.from_json(flat, f"{file}:{number}")
            latest[cell.cell_id] = cell
    return list(latest.values())


def record(stack: Stack, cells: Sequence[Cell], predicted: dict[Place, float] | None = None) -> Recorded:
    """Put the cells of a stack together; invalid and failed ones count as moments only."""
    groups: defaultdict[Place, list[Cell]] = defaultdict(list)
    for cell in cells:
        if cell.status in MEASURED and cell.status != "invalid" and cell.load:
            groups[Place(cell.variant, cell.workload, band_of(cell.concurrency))].append(cell)
    floors = {name: floor for name in stack.variants if (floor := derived_floor(stack, name)) is not None}
    specs = {name: variant.speculation for name, variant in stack.variants.items()}
    return Recorded(
        stack=stack.name,
        places={place: _figures(group) for place, group in groups.items()},
        predicted_tpot_s=predicted or {},
        ended=tuple(_ended(cell) for cell in cells),
        k={name: spec.k for name, spec in specs.items() if spec},
        schedule={
            (name, band_name(upper)): _scheduled(spec.schedule, upper, spec.k)
            for name, spec in specs.items()
            if spec
            for upper in BOUNDS
            if stack.memory.max_num_seqs is None or upper <= stack.memory.max_num_seqs
        },
        floors=floors,
    )


def predictions(stack: Stack, cells_file: Path) -> dict[Place, float]:
    """Predicted TPOT in seconds at every measured place; empty where the model cannot be fitted."""
    try:
        observed = read_observations(cells_file, stack)
        session = open_session(stack, observed, draws=8)
        # A place of the grid differs a little in context from repeat to repeat; its last cell stands for it.
        wanted = {
            Place(o.variant, o.workload, band_of(o.batch)): Wanted(
                o.variant, o.k, o.batch, o.context, o.context_ranks, o.workload
            )
            for o in observed
        }
        found = predict(session.fit, list(wanted.values()), session.draft_bytes, acceptance=session.acceptance)
    except OutriderError:
        return {}
    return {place: one.tpot_s.mid for place, one in zip(wanted, found, strict=True)}


def _figures(cells: list[Cell]) -> Figures:
    loads = [cell.load for cell in cells if cell.load]
    return Figures(
        _mean(load.tpot_s.mean for load in loads),
        _mean(load.throughput_tok_s for load in loads),
        _mean(cell.tokens_per_step for cell in cells),
    )


def _ended(cell: Cell) -> Ended:
    began = datetime.fromisoformat(cell.started_at).timestamp()
    return Ended(cell.cell_id, cell.variant, cell.workload, cell.concurrency, cell.status, began + cell.wall_s)


def _scheduled(bands: tuple[tuple[int, int, int], ...] | None, concurrency: int, k: int) -> int:
    """The k that holds at a concurrency; beyond the last band the engine keeps that band's."""
    if not bands:
        return k
    return next((value for first, last, value in bands if first <= concurrency <= last), bands[-1][2])


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else None
