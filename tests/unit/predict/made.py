"""Cells with known truth, and the public data beside the checkout."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from outrider.predict import factors as fx
from outrider.predict.fit import places_of
from outrider.predict.holdout import matches
from outrider.predict.model import step_s
from outrider.predict.observations import Observation, read_observations
from outrider.predict.session import Session, open_session
from outrider.predict.traffic import Machine, machine_of
from outrider.stack import Stack, find_stack

if TYPE_CHECKING:
    from collections.abc import Sequence

DATA = Path(__file__).parents[2] / "data"
PUBLIC = DATA / "kimi_k26_rtxpro6000x8_cells.csv"
STEP_COST = DATA / "kimi_shape_8layers_h200_stepcost.jsonl"
FLAGSHIP = "kimi-k2.5-rtx6000x8"
SHAPE = "kimi-shape8-h200"


def flagship() -> Stack:
    return find_stack(FLAGSHIP)


def made_cells(
    stack: Stack,
    truth: fx.Factors,
    places: Sequence[tuple[int, float, int]],
    *,
    tokens: float = 2.2,
    noise: float = 0.0,
    variant: str = "eagle3",
) -> list[Observation]:
    """Cells of (batch, context, k) that the model with `truth` would measure."""
    machine, rng = machine_of(stack), np.random.default_rng(0)
    found = []
    for number, (batch, context, k) in enumerate(places):
        name, gain = (variant, tokens) if k else ("baseline", 1.0)
        cell = Observation(f"made:{number}", name, "", k, batch, context, 1, 1.0, gain)
        step = step_s(machine, places_of([cell], lambda _: draft_bytes_of(stack, variant)), truth)[0]
        rate = gain / step * float(np.exp(rng.normal(0, noise)))
        found.append(Observation(cell.where, name, "", k, batch, context, 1, rate, gain))
    return found


def draft_bytes_of(stack: Stack, variant: str) -> float:
    return open_session(stack, draws=0).draft_bytes(variant)


def centre(machine: Machine) -> fx.Factors:
    return fx.factors_of(fx.centre(machine))


def split(stack_name: str, file: Path, holdout: str, *, draws: int = 40) -> tuple[Session, list[Observation]]:
    """A session fitted to what a hold-out leaves, and what it holds out."""
    stack = find_stack(stack_name)
    cells = read_observations(file, stack)
    held = [cell for cell in cells if matches(holdout, cell.columns())]
    kept = [cell for cell in cells if not matches(holdout, cell.columns())]
    return open_session(stack, kept, draws=draws), held
