"""A decode profile as evidence: how long a plain step takes and where the time goes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from outrider.predict.errors import PredictError
from outrider.predict.model import step_parts
from outrider.predict.places import Places

if TYPE_CHECKING:
    from pathlib import Path

    from outrider.campaign.resampling import Floats
    from outrider.predict.factors import Factors
    from outrider.predict.traffic import Machine

# Profile's names to the model's parts. Attention projections run between attention kernels and profilers book them
# differently, so attention and other GEMMs are held against their sum.
_GROUPS = {"allreduce": ("allreduce",), "attention_dense": ("attention", "dense"), "experts": ("experts",)}
_STEP_SD, _SHARE_SD = 0.03, 0.12


@dataclass(frozen=True, slots=True)
class Shares:
    """A profile of plain decoding at one place.

    Attributes:
        step_s: seconds of a step.
        allreduce, attention, dense, experts: shares of it, 0-1; what is left is launch and unknown.
        batch, context, context_ranks: where it was taken.
        source: where it comes from.
    """

    step_s: float
    allreduce: float
    attention: float
    dense: float
    experts: float
    batch: int = 1
    context: float = 512.0
    context_ranks: int = 1
    source: str = "profile"

    def residuals(self, machine: Machine, factors: Factors) -> Floats:
        """log(measured / predicted) over its noise: the step, and each group of parts."""
        at = Places.of([(self.batch, self.context, 0, self.context_ranks, 0.0)])
        parts = {name: float(value[0]) for name, value in step_parts(machine, at, factors).items()}
        measured = {
            "allreduce": self.allreduce,
            "attention_dense": self.attention + self.dense,
            "experts": self.experts,
        }
        rows = [np.log(self.step_s / sum(parts.values())) / _STEP_SD]
        for name, members in _GROUPS.items():
            predicted = sum(parts[m] for m in members)
            if measured[name] > 0 and predicted > 0:
                rows.append(np.log(measured[name] * self.step_s / predicted) / _SHARE_SD)
        return np.array(rows)


def read_shares(file: Path) -> Shares:
    """Read `outrider profile --json`, or the same fields written by hand.

    `{"step_ms": 12.1, "shares": {"allreduce": 0.515, "attention": 0.153, "other_gemm": 0.134, "moe_gemm": 0.111}}`,
    optionally with `batch`, `context_tokens`, `dcp`.

    Raises:
        PredictError: not such a file, or shares that are no shares.
    """
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        shares = data["shares"]
        found = Shares(
            step_s=float(data["step_ms"]) / 1000,
            allreduce=float(shares.get("allreduce", 0)),
            attention=float(shares.get("attention", 0)),
            dense=float(shares.get("other_gemm", 0)),
            experts=float(shares.get("moe_gemm", 0)),
            batch=int(data.get("batch", 1)),
            context=float(data.get("context_tokens", 512)),
            context_ranks=int(data.get("dcp", 1)),
            source=file.name,
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise PredictError(
            f"{file} is no decode profile",
            evidence=f"{type(error).__name__}: {error}",
            next_step='it needs "step_ms" and "shares" (allreduce, attention, other_gemm, moe_gemm)',
        ) from error
    parts = (found.allreduce, found.attention, found.dense, found.experts)
    if found.step_s <= 0 or min(parts) < 0 or sum(parts) > 1.001:
        raise PredictError(
            "shares of a profile are fractions of one step",
            evidence=f"{file}: step {found.step_s * 1000:g} ms, shares add up to {sum(parts):g}",
            next_step="give 0.515, not 51.5",
        )
    return found
