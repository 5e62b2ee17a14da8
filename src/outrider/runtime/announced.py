"""Any runtime, with Prometheus told of what it starts and stops.

The one place where the three runtimes meet service discovery: a variant that answers becomes a target, and one that is
stopped is dropped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from outrider.runtime import discovery

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from outrider.engine import Launch
    from outrider.errors import EngineError
    from outrider.runtime.base import Progress, Running, Runtime, Status
    from outrider.stack import Stack


class Announced:
    """See `outrider.runtime.base.Runtime`.

    Args:
        runtime: what really runs engines.
        stack: needed by `start`: labels come from it.
    """

    def __init__(self, runtime: Runtime, stack: Stack | None = None) -> None:
        self._runtime = runtime
        self._stack = stack

    def start(
        self,
        name: str,
        launch: Launch,
        *,
        host: str = "127.0.0.1",
        on_progress: Callable[[Progress], None] | None = None,
        detached: bool = False,
        labels: Mapping[str, str] | None = None,
        weights: Sequence[Path] = (),
    ) -> Running:
        """Start an engine, wait until it answers, and publish it."""
        running = self._runtime.start(
            name, launch, host=host, on_progress=on_progress, detached=detached, labels=labels, weights=weights
        )
        stack_name, _, variant = name.rpartition("/")
        if self._stack is None or self._stack.name != stack_name:
            return running
        try:
            target = discovery.engine_target(self._stack, variant, running.url, launch.metrics_path)
            discovery.publish(target)
        except BaseException:
            running.stop()
            raise
        return _AnnouncedRunning(running)

    def status(self, name: str) -> Status:
        """What is known of a name."""
        return self._runtime.status(name)

    def list(self) -> tuple[Status, ...]:
        """Every name that was ever started here."""
        return self._runtime.list()

    def log_lines(self, name: str, last: int | None = None) -> Sequence[str]:
        """Output of the latest run under a name."""
        return self._runtime.log_lines(name, last)

    def stop(self, name: str) -> Status:
        """End a name's engine, and drop its target; an engine that died before keeps it until then."""
        status = self._runtime.stop(name)
        discovery.drop_engine(name)
        return status


class _AnnouncedRunning:
    """A started engine whose stop drops its target; see `outrider.runtime.base.Running`."""

    def __init__(self, running: Running) -> None:
        self._running = running

    @property
    def name(self) -> str:
        """`<stack>/<variant>`."""
        return self._running.name

    @property
    def url(self) -> str:
        """Base URL of the API."""
        return self._running.url

    @property
    def pid(self) -> int | None:
        """The engine's main process."""
        return self._running.pid

    @property
    def log_file(self) -> Path | None:
        """The log file that grows now."""
        return self._running.log_file

    def log_lines(self, last: int | None = None) -> Sequence[str]:
        """The engine's output, oldest first."""
        return self._running.log_lines(last)

    def alive(self) -> bool:
        """Whether the engine's main process lives now."""
        return self._running.alive()

    def failure(self) -> EngineError | None:
        """Why it is not alive; None while it lives."""
        return self._running.failure()

    def stop(self) -> None:
        """End it, and drop its target."""
        self._running.stop()
        discovery.drop_engine(self.name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._running.__exit__(kind, error, trace)
        discovery.drop_engine(self.name)
