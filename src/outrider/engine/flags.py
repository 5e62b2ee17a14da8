"""What is said of every engine's flags in the same way: how they are written, refused and found lossy."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from outrider.errors import StackError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from outrider.stack.schema import Stack


def free_flags(stack: Stack, variant: str) -> dict[str, object]:
    """Flags that the schema does not type: the engine's, then the variant's, which win."""
    return {**stack.engine_of(variant).flags, **stack.variant(variant).flags}


def words(name: str, value: object, *, negated: bool) -> list[str]:
    """A flag as words of a command line.

    Args:
        name: without dashes.
        value: true is the bare flag; an object becomes JSON, a list one word each.
        negated: whether false is written `--no-NAME`; else it is left out.
    """
    if value is True:
        return [f"--{name}"]
    if value is False:
        return [f"--no-{name}"] if negated else []
    if isinstance(value, dict):
        return [f"--{name}", json.dumps(value, separators=(",", ":"))]
    if isinstance(value, list | tuple):
        return [f"--{name}", *map(str, value)]
    return [f"--{name}", str(value)]


def refuse_typed(stack: Stack, variant: str, typed: Mapping[str, str]) -> None:
    """Refuse a flag that would be written a second time.

    Args:
        stack: the stack.
        variant: name of one of its variants.
        typed: what to set instead, by flag.

    Raises:
        StackError: such a flag is set.
    """
    chosen = stack.variant(variant)
    engine = f"variants.{variant}.engine.flags" if chosen.engine else "engine.flags"
    for where, flags in (
        (engine, stack.engine_of(variant).flags),
        (f"variants.{variant}.flags", chosen.flags),
    ):
        for flag in flags:
            if flag in typed:
                raise StackError(
                    f"{where}.{flag} is written through {typed[flag]}",
                    evidence=f"stack {stack.name}",
                    next_step=f"remove the flag and set {typed[flag]}",
                )


def refuse_lossy(stack: Stack, variant: str, lossy: Sequence[str]) -> None:
    """Refuse settings that may change answers, where nobody opted in.

    Raises:
        StackError: there is one, and the stack does not allow it.
    """
    if lossy and not stack.allow_lossy:
        raise StackError(
            f"variant {variant} changes the target's output distribution: {'; '.join(lossy)}",
            evidence=f"stack {stack.name}, allow_lossy: false",
            next_step="remove the setting, or opt in with `allow_lossy: true` (reports will be marked)",
        )


def lossy_settings(stack: Stack, variant: str) -> list[str]:
    """Lossy settings that engines share: a coarser KV cache, weights quantised again at load."""
    found: list[str] = []
    if stack.memory.kv_cache_dtype != "auto":
        found.append(f"memory.kv_cache_dtype {stack.memory.kv_cache_dtype} down-casts the KV cache")
    flags = free_flags(stack, variant)
    if "quantization" in flags:
        found.append(f"flag quantization {flags['quantization']} re-quantises the weights at load")
    return found


def weight_bytes(stack: Stack, variant: str) -> int:
    """Bytes of target and drafter; 0 if unknown."""
    spec = stack.variant(variant).speculation
    drafter_gb = spec.drafter.weight_gb if spec and spec.drafter else 0.0
    return int((stack.target.weight_gb + drafter_gb) * 1e9)
