"""The engines of a campaign: started when first needed, brought back after a death, stopped at the end."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from outrider.engine import Launch, StartupFacts, adapter_of
from outrider.errors import EngineError, OutriderError
from outrider.model_store import locate
from outrider.runtime.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from outrider.runtime.base import Progress, Running, Runtime
    from outrider.stack import Stack

# An engine that dies twice under the same variant will die again: the rest of its cells fail at once.
_RESTARTS = 1
# An engine binds its port only half a minute after it was chosen: campaigns on one machine look in places of their own,
# below the ports that the kernel gives to clients (32768 and up).
_FIRST_PORT = 10_000 + 10 * (os.getpid() % 2000)


@dataclass(slots=True)
class Served:
    """A variant that is being served."""

    variant: str
    launch: Launch
    running: Running
    facts: StartupFacts


class Engines:
    """Serves variants of one stack.

    Args:
        stack: what to serve.
        runtime: how.
        side_by_side: variants stay up together; else starting one stops the others first.
        on_progress: called with variant and progress while an engine starts.
    """

    def __init__(
        self,
        stack: Stack,
        runtime: Runtime,
        *,
        side_by_side: bool,
        on_progress: Callable[[str, Progress], None] = lambda _variant, _progress: None,
    ) -> None:
        self._stack = stack
        self._runtime = runtime
        self._side_by_side = side_by_side
        self._on_progress = on_progress
        self._served: dict[str, Served] = {}
        self._starts: dict[str, int] = {}
        self._ports = threading.Lock()
        self._taken: dict[str, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop_all()

    def start(self, variants: Sequence[str]) -> dict[str, OutriderError]:
        """Start variants at the same time where they fit side by side; returns why some did not start."""
        if not self._side_by_side or len(variants) < 2:
            return {}
        failures: dict[str, OutriderError] = {}
        with ThreadPoolExecutor(len(variants)) as pool:
            started = {variant: pool.submit(self.get, variant) for variant in variants}
            for variant, future in started.items():
                try:
                    future.result()
                except OutriderError as error:
                    failures[variant] = error
        return failures

    def get(self, variant: str) -> Served:
        """The served variant, started now if it is not up.

        Raises:
            EngineError: it did not start, or has died too often.
            ModelError: its weights are missing or damaged.
            RuntimeStateError: another campaign or `serve` runs it.
        """
        served = self._served.get(variant)
        if served and served.running.alive():
            return served
        if served:
            self._drop(variant)
        if self._starts.get(variant, 0) > _RESTARTS:
            raise EngineError(
                f"the engine of {variant} is not started again: it has been started {self._starts[variant]} times",
                next_step="read its log in the run's logs/ directory",
            )
        if not self._side_by_side:
            self.stop_all()
        self._starts[variant] = self._starts.get(variant, 0) + 1
        self._served[variant] = self._start(variant)
        return self._served[variant]

    def pids(self) -> list[int]:
        """Main processes of all engines that are up."""
        return [pid for served in self._served.values() if (pid := served.running.pid)]

    def death(self, variant: str) -> EngineError | None:
        """Why a variant's engine is not alive; None while it lives."""
        served = self._served.get(variant)
        return served.running.failure() if served else None

    def stop_all(self) -> None:
        """Stop every engine; the first that cannot be stopped is reported after all were tried."""
        failed: Exception | None = None
        for variant in list(self._served):
            try:
                self._drop(variant)
            except Exception as error:  # noqa: BLE001 - the others must still be stopped; re-raised below
                failed = failed or error
        if failed:
            raise failed

    def _port(self, variant: str) -> int:
        # Engines that start at the same time must not be told the same free port.
        with self._ports:
            self._taken[variant] = free_port(max((_FIRST_PORT, *(port + 1 for port in self._taken.values()))))
            return self._taken[variant]

    def _drop(self, variant: str) -> None:
        self._served.pop(variant).running.stop()

    def _start(self, variant: str) -> Served:
        located = locate(self._stack, variant)
        engine = adapter_of(self._stack, variant)
        launch = engine.launch(
            self._stack,
            variant,
            host="127.0.0.1",
            port=self._port(variant),
            model_dir=located.model_dir,
            drafter_dir=located.drafter_dir,
        )
        running = self._runtime.start(
            f"{self._stack.name}/{variant}",
            launch,
            on_progress=lambda progress: self._on_progress(variant, progress),
            labels={"stack_digest": self._stack.digest()},
            weights=[path for path in (located.model_dir, located.drafter_dir) if path],
        )
        return Served(variant, launch, running, engine.startup_facts(running.log_lines()))
