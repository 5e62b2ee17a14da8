"""A decision as JSON, and as the comments of an overlay."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from outrider.campaign.stats import Interval
    from outrider.decide.decision import Decision
    from outrider.decide.options import Option
    from outrider.decide.places import PlaceChoice
    from outrider.decide.probe import Probe
    from outrider.predict.fit import Fit
    from outrider.stack import Stack


def decision_json(stack: Stack, fit: Fit, found: Decision, probes: Sequence[Probe], verdict: str) -> dict[str, Any]:
    """`outrider decide --json`."""
    return {
        "schema": 1,
        "stack": stack.name,
        "stack_digest": stack.digest(),
        "fitted_to": {"source": fit.source, "cells": len(fit.cells)},
        "slo": {
            "objective": found.slo.objective,
            "percentile": found.slo.percentile,
            "max_tpot_s": found.slo.max_tpot_s,
            "max_ttft_s": found.slo.max_ttft_s,
        },
        "workload": found.workload,
        "default_band": found.default_band.name,
        "choices": [choice_json(choice) for choice in found.choices],
        "capacity": [
            {"band": band.name, "concurrency": c.batch, "variant": c.best.variant, "k": c.best.k,
             "throughput_tok_s": _ends(c.best.throughput_tok_s)}
            for band, c in found.capacity.items()
        ],
        "gates": [
            {"name": g.name, "verdict": g.verdict, "why": g.why, "evidence": list(g.evidence)} for g in found.gates
        ],
        "dynamic_cost": {
            "speculating": found.cost.speculating, "off": found.cost.off, "source": found.cost.source,
        },
        "schedules": [
            {
                "variant": e.name,
                "from": e.source,
                "band": e.band.name,
                "num_speculative_tokens_per_batch_size": [list(band) for band in e.schedule.bands],
                "gain": e.schedule.gain,
                "static_k": e.schedule.static_k,
                "static_gain": e.schedule.static_gain,
                "best_gain": e.schedule.best_gain,
                "worthwhile": e.schedule.worthwhile,
            }
            for e in found.emitted
        ],
        "probe": [probe.as_dict() for probe in probes],
        "recommendation": verdict,
        "left_out": found.left_out,
    }  # fmt: skip


def choice_json(choice: PlaceChoice) -> dict[str, Any]:
    """One place."""
    return {
        "band": choice.band.name,
        "context_tokens": choice.band.context,
        "concurrency": choice.batch,
        "variant": choice.best.variant,
        "k": choice.best.k,
        "slo": choice.slo,
        "why": choice.why,
        "options": [_option_json(option) for option in choice.options],
    }


def evidence_lines(stack: Stack, fit: Fit, found: Decision, verdict: str) -> list[str]:
    """What an emitted overlay says about itself."""
    cost = found.cost
    head = f"Emitted by `outrider decide {stack.name}` (stack digest {stack.digest()})"
    dynamic = f"Dynamic path: {cost.speculating:.1%} while speculating, {cost.off:.1%} at K=0 ({cost.source})."
    each = (
        f"{e.name}: contexts of {e.band.name} tokens; {e.schedule.gain:.2f}x of plain decoding over batch sizes, "
        f"best single k={e.schedule.static_k} {e.schedule.static_gain:.2f}x."
        for e in found.emitted
    )
    return [f"{head}; fitted to {fit.source}, {len(fit.cells)} cells.", dynamic, f"Recommended: {verdict}.", *each]


def _option_json(option: Option) -> dict[str, Any]:
    return {
        "variant": option.variant,
        "k": option.k,
        "tpot_s": _ends(option.tpot_s),
        "throughput_tok_s": _ends(option.throughput_tok_s),
        "tokens_per_step": option.tokens_per_step,
        "speedup": _ends(option.speedup),
        "break_even_tokens_per_step": _ends(option.break_even),
        "source": option.source,
        "extrapolated": option.extrapolated,
    }


def _ends(interval: Interval | None) -> dict[str, float | None] | None:
    if interval is None:
        return None
    ends = {"low": interval.low, "mid": interval.mid, "high": interval.high}
    return {name: value if math.isfinite(value) else None for name, value in ends.items()}
