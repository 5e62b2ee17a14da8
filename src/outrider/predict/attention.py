"""Reading the KV cache: limited by memory where many rows read at once, by parallelism where few do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from outrider.campaign.resampling import Floats
    from outrider.predict.places import Places
    from outrider.predict.traffic import Machine


def attention_s(machine: Machine, at: Places, kv_stream: float, saturation: float) -> Floats:
    """Seconds of attention over the cache in one pass through the target.

    A row is one pass over a sequence's cache: one a sequence, or one a verified token where the kernel takes every
    token for a sequence of its own (TRITON_MLA). Fewer than `saturation` rows leave the memory waiting. Decode
    context parallelism cuts each row to 1/n of the context and makes n times as many, because queries of n ranks'
    heads are gathered: it helps while rows are few, and saves nothing once they are many.

    Args:
        machine: bytes a cached token.
        at: where.
        kv_stream: share of memory bandwidth that the kernel reaches with many rows.
        saturation: rows at which it does.
    """
    rows = at.batch * at.context_ranks * ((at.k + 1) if machine.rereads else 1.0)
    row_bytes = machine.kv_bytes * machine.layers * at.context / at.context_ranks
    result: Floats = row_bytes * np.hypot(saturation, rows) / (machine.bandwidth * kv_stream)
    return result
