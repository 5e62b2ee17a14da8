"""The few numbers that physics does not give: each with a prior, bounds, and why."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from outrider.campaign.resampling import Floats
    from outrider.predict.traffic import Machine


@dataclass(frozen=True, slots=True)
class Factors:
    """One setting of the model.

    Attributes:
        stream: share of memory bandwidth that reading dense weights reaches.
        expert_stream: the same for routed experts.
        compute: share of peak FLOP/s that matrix products reach.
        overlap: exponent on the tokens of a batch; see `experts.distinct_experts`.
        skew: how unevenly experts are popular; likewise.
        kv_stream: share of memory bandwidth that attention reaches with many rows.
        saturation: rows of attention that fill the memory.
        hop: on the latency of a ring step.
        link: on the bandwidth of the interconnect.
        launch: on the fixed costs.
        draft: on the whole cost of drafting.
    """

    stream: float
    expert_stream: float
    compute: float
    overlap: float
    skew: float
    kv_stream: float
    saturation: float
    hop: float
    link: float
    launch: float
    draft: float


@dataclass(frozen=True, slots=True)
class Prior:
    """Belief about one factor before any cell: log-normal around `centre`, cut at the bounds."""

    centre: float
    log_sd: float
    low: float
    high: float
    why: str


PRIORS: dict[str, Prior] = {
    "stream": Prior(0.78, 0.12, 0.3, 1.0, "BF16 products of few rows reach 70-85 % of memory peak"),
    "expert_stream": Prior(0.70, 0.25, 0.2, 1.0, "grouped INT4: 62 % on the flagship node at one token, 72 % on H200"),
    "compute": Prior(0.45, 0.35, 0.05, 0.9, "grouped products of few rows an expert reach 30-60 % of peak"),
    "overlap": Prior(0.80, 0.12, 0.5, 1.0, "0.75 measured on a model of 256 experts, 1 is uniform routing"),
    "skew": Prior(1.0, 0.7, 0.02, 8.0, "some experts are more popular on any one kind of text"),
    "kv_stream": Prior(0.60, 0.5, 0.05, 1.5, "paged caches; the cache's dtype may differ from the stack's"),
    "saturation": Prior(3.0, 0.8, 0.05, 200.0, "kernels split a sequence into a few parts only"),
    "hop": Prior(1.0, 0.5, 0.1, 10.0, "hardware.yaml"),
    "link": Prior(1.0, 0.4, 0.1, 4.0, "hardware.yaml"),
    "launch": Prior(1.0, 0.4, 0.2, 6.0, "hardware.yaml"),
    "draft": Prior(1.0, 0.4, 0.2, 6.0, "weights and launches of each pass"),
}
# Dummy weights route uniformly.
_UNIFORM = {
    "overlap": Prior(1.0, 0.03, 0.9, 1.0, "dummy weights route uniformly"),
    "skew": Prior(0.02, 0.3, 0.01, 0.2, "dummy weights route uniformly"),
}
NAMES = tuple(PRIORS)


def priors(machine: Machine) -> dict[str, Prior]:
    """Priors for a machine."""
    return PRIORS | (_UNIFORM if machine.dummy else {})


def centre(machine: Machine) -> Floats:
    """Logarithms of the prior centres, in the order of `NAMES`."""
    return np.array([math.log(p.centre) for p in priors(machine).values()])


def spread(machine: Machine) -> Floats:
    """Standard deviations of the logarithms."""
    return np.array([p.log_sd for p in priors(machine).values()])


def bounds(machine: Machine) -> tuple[Floats, Floats]:
    """Logarithms of the bounds."""
    own = priors(machine).values()
    return np.array([math.log(p.low) for p in own]), np.array([math.log(p.high) for p in own])


def factors_of(logs: Floats) -> Factors:
    """Factors from their logarithms."""
    return Factors(**dict(zip(NAMES, np.exp(logs).tolist(), strict=True)))
