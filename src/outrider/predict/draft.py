"""What proposing k tokens costs: k passes of the drafter, the first over all verified tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from outrider.predict.allreduce import all_reduce_s

if TYPE_CHECKING:
    from outrider.campaign.resampling import Floats
    from outrider.predict.factors import Factors
    from outrider.predict.places import Places
    from outrider.predict.traffic import Machine


def draft_s(machine: Machine, at: Places, factors: Factors) -> Floats:
    """Seconds of drafting a step; 0 where k is 0.

    An EAGLE-type head reads its weights in every pass and reduces twice; a look-up method (`draft_bytes` 0) costs
    one fixed pass on the host.
    """
    drafting = at.k > 0
    weights = at.draft_bytes
    passes = np.where(weights > 0, at.k, 1.0)
    tokens = np.where(weights > 0, at.batch * (2 * at.k), 0.0)
    once: Floats = np.full_like(at.k, machine.draft_s * factors.launch)
    read = weights / (machine.bandwidth * factors.stream)
    if machine.ranks > 1:
        message = 2.0 * at.batch * machine.hidden
        reduce = 2 * all_reduce_s(machine, message, factors.hop, factors.link)
        once = once + np.where(weights > 0, reduce, 0.0)
    compute = tokens * weights / (machine.peak_flops * factors.compute)
    result: Floats = np.where(drafting, factors.draft * (passes * (once + read) + compute), 0.0)
    return result
