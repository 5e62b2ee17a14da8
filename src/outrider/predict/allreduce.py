"""Collectives of a step: ring latency plus traffic, in whichever protocol is faster for that size."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from outrider.campaign.resampling import Floats
    from outrider.predict.traffic import Machine


def all_reduce_s(machine: Machine, nbytes: Floats, hop: float, link: float) -> Floats:
    """Seconds of one all-reduce over all ranks: 2(n-1) ring steps, each of which moves 1/n of the message."""
    n = machine.ranks
    return _ring_s(machine, 2 * (n - 1), 2 * nbytes * (n - 1) / n, hop, link)


def gather_s(machine: Machine, nbytes: Floats, ranks: Floats, hop: float, link: float) -> Floats:
    """Seconds of one all-gather or reduce-scatter of `nbytes` in total over `ranks` (any shape): n-1 ring steps."""
    return _ring_s(machine, ranks - 1, nbytes * (ranks - 1) / ranks, hop, link)


def step_collectives_s(machine: Machine, tokens: Floats, context_ranks: Floats, hop: float, link: float) -> Floats:
    """All collectives of one pass through the target.

    Two all-reduces a layer and one after the embedding; the logits are gathered once. Decode context parallelism
    adds three exchanges a layer inside groups of `context_ranks`: queries gathered, log-sum-exps gathered, outputs
    reduce-scattered (vLLM 0.33.0, `v1/attention/ops/common.py`: cp_lse_ag_out_rs).

    Args:
        machine: ranks, widths and links.
        tokens: T that pass through together.
        context_ranks: decode context parallelism, same shape; 1 for none.
        hop: factor on the latency of a ring step.
        link: factor on the bandwidth.
    """
    total = np.zeros_like(tokens)
    if machine.ranks > 1:
        reduces = 2 * machine.layers + 1
        total = reduces * all_reduce_s(machine, 2.0 * tokens * machine.hidden, hop, link)
        ranks = np.full_like(tokens, machine.ranks)
        total = total + gather_s(machine, 2.0 * tokens * machine.vocabulary, ranks, hop, link)
    queries = gather_s(machine, tokens * context_ranks * machine.query_bytes, context_ranks, hop, link)
    outputs = gather_s(machine, tokens * context_ranks * machine.output_bytes, context_ranks, hop, link)
    sums = gather_s(machine, np.zeros_like(tokens), context_ranks, hop, link)
    return total + machine.layers * (queries + outputs + sums)


def _ring_s(machine: Machine, steps: Floats | int, traffic: Floats, hop: float, link: float) -> Floats:
    ways = [steps * one.hop_s * hop + traffic / (one.bytes_s * link) for one in machine.links]
    result: Floats = np.minimum.reduce(ways)
    return result
