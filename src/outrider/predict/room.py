"""Which places fit into the KV cache at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outrider.preflight.run import run_preflight

if TYPE_CHECKING:
    from outrider.predict.surface import Wanted
    from outrider.stack import Stack


def kv_room(stack: Stack, variant: str) -> int | None:
    """Tokens that the KV cache of one rank holds, by preflight's memory model; None where it cannot tell."""
    figures = run_preflight(stack, variant).memory
    return figures[0].kv_tokens if figures and figures[0].kv_tokens > 0 else None


def fitting(stack: Stack, wanted: list[Wanted]) -> tuple[list[Wanted], list[Wanted]]:
    """Places that fit and places that do not; with decode context parallelism each rank holds a part."""
    rooms = {variant: kv_room(stack, variant) for variant in {w.variant for w in wanted} if variant in stack.variants}
    inside: list[Wanted] = []
    outside: list[Wanted] = []
    for one in wanted:
        room = rooms.get(one.variant)
        needs = one.batch * (one.context + one.k + 1) / one.context_ranks
        (inside if room is None or needs <= room else outside).append(one)
    return inside, outside
