"""Engine adapters: the only place that knows an engine's flags, log lines and metric names."""

from outrider.engine.base import (
    EngineAdapter,
    EngineScrape,
    Histogram,
    Launch,
    SpecCounters,
    StartupFacts,
)
from outrider.engine.vllm import VllmAdapter
from outrider.errors import EngineError
from outrider.stack.names import did_you_mean

__all__ = [
    "EngineAdapter",
    "EngineScrape",
    "Histogram",
    "Launch",
    "SpecCounters",
    "StartupFacts",
    "adapter",
]

_ADAPTERS: dict[str, EngineAdapter] = {"vllm": VllmAdapter()}


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
