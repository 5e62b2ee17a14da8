"""Engine adapters: the only place that knows an engine's flags, log lines and metric names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outrider.engine.base import (
    EngineAdapter,
    EngineScrape,
    Histogram,
    Launch,
    SpecCounters,
    StartupFacts,
)
from outrider.engine.sglang import SglangAdapter
from outrider.engine.vllm import VllmAdapter
from outrider.errors import EngineError
from outrider.stack.names import did_you_mean

if TYPE_CHECKING:
    from outrider.stack import Stack

__all__ = [
    "EngineAdapter",
    "EngineScrape",
    "Histogram",
    "Launch",
    "SpecCounters",
    "StartupFacts",
    "adapter",
    "adapter_of",
    "adapters",
]

_ADAPTERS: dict[str, EngineAdapter] = {"vllm": VllmAdapter(), "sglang": SglangAdapter()}


def adapter(name: str) -> EngineAdapter:
    """The adapter of an engine.

    Raises:
        EngineError: no adapter of that name exists.
    """
    if name not in _ADAPTERS:
        raise EngineError(
            f"there is no adapter for engine {name!r}{did_you_mean(name, _ADAPTERS)}",
            next_step=f"one of: {', '.join(_ADAPTERS)}",
        )
    return _ADAPTERS[name]


def adapter_of(stack: Stack, variant: str) -> EngineAdapter:
    """The adapter of the engine that a variant runs on."""
    return adapter(stack.engine_of(variant).name)


def adapters() -> tuple[EngineAdapter, ...]:
    """Every adapter."""
    return tuple(_ADAPTERS.values())
