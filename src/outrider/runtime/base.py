"""The interface that every runtime shares: start a variant, watch it, stop it, and prove that it is gone.

`local` supervises a process; containers and systemd units fit the same shape: a name such as
`smollm2-cpu/ngram` is one variant of one stack, and at most one engine runs under a name at a time.

    with runtime.start("smollm2-cpu/ngram", launch, on_progress=show) as engine:
        measure(engine.url)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from outrider.engine.base import Launch
    from outrider.errors import EngineError


class State(StrEnum):
    """Where the engine of a name stands."""

    ABSENT = "absent"  # never started here
    STARTING = "starting"  # its process lives, it has not answered yet
    READY = "ready"  # its process lives and it has answered
    LEFTOVER = "leftover"  # the engine is gone, processes of its run are not: `stop` ends them
    ENDED = "ended"  # nothing of the run is left


@dataclass(frozen=True, slots=True)
class Progress:
    """One reading of a start that is under way.

    Attributes:
        share: how much of the start is done, 0-1, never falling; None while the log has not told.
        elapsed_s: seconds since the process was started.
        budget_s: seconds that the start may take; beyond, it goes on only while it makes progress.
        eta_s: seconds probably left, by the last start under this name or by `share`; None if unknown.
        line: last line of the log.
    """

    share: float | None
    elapsed_s: float
    budget_s: float
    eta_s: float | None
    line: str


@dataclass(frozen=True, slots=True)
class Status:
    """What is known of a name, from any process.

    Attributes:
        name: `<stack>/<variant>`.
        state: where it stands.
        url: base URL of the API; empty if absent.
        pid: the engine's main process; None if absent or not visible from here.
        port: its TCP port; 0 if absent.
        argv: its command.
        labels: what the starter attached (stack hash, image digest, ...).
        detached: whether it outlives its starter.
        started_at: Unix seconds of the start.
        ready_at: Unix seconds of the first answer; None before.
        ended_at: Unix seconds of the end; None while it runs.
        ending: how it ended, in words; None while it runs.
        log_file: where its output goes; None for a runtime that keeps no file.
    """

    name: str
    state: State
    url: str = ""
    pid: int | None = None
    port: int = 0
    argv: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    detached: bool = False
    started_at: float | None = None
    ready_at: float | None = None
    ended_at: float | None = None
    ending: str | None = None
    log_file: Path | None = None


class Running(Protocol):
    """A started engine that has answered its health path. Leaving its `with` block stops it."""

    @property
    def name(self) -> str:
        """`<stack>/<variant>`."""
        ...

    @property
    def url(self) -> str:
        """Base URL of the API, without a trailing slash or path."""
        ...

    @property
    def pid(self) -> int | None:
        """The engine's main process."""
        ...

    @property
    def log_file(self) -> Path | None:
        """The file that grows now; `log_lines` also reads what was rotated away."""
        ...

    def log_lines(self, last: int | None = None) -> Sequence[str]:
        """The engine's output, oldest first; only the last ones if `last` is given."""
        ...

    def alive(self) -> bool:
        """Whether the engine's main process lives now."""
        ...

    def failure(self) -> EngineError | None:
        """Why it is not alive, with its last log lines; None while it lives."""
        ...

    def stop(self) -> None:
        """End it and prove that it is gone; harmless when it has ended already.

        Raises:
            RuntimeStateError: a process of the run, or its port, could not be freed.
        """
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Runtime(Protocol):
    """One way of running engines. All methods but `start` also work from a process that started nothing."""

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
        """Start an engine and wait until it answers.

        Args:
            name: `<stack>/<variant>`.
            launch: what to run.
            host: address that the engine listens on, as in the launch's argv.
            on_progress: called at each look at the starting engine, about once a second or more often.
            detached: the engine outlives this process once it is ready; until then, and otherwise
                always, it dies with this process, however that ends.
            labels: kept with the run and shown by `status`.
            weights: weight files or directories; a short read of them measures the disk for the budget.

        Raises:
            RuntimeStateError: the name runs already, or its port is taken.
            EngineError: the engine died or did not become ready; nothing of it is left.
        """
        ...

    def status(self, name: str) -> Status:
        """What is known of a name."""
        ...

    def list(self) -> tuple[Status, ...]:
        """Every name that was ever started here, in order of name."""
        ...

    def log_lines(self, name: str, last: int | None = None) -> Sequence[str]:
        """Output of the latest run under a name."""
        ...

    def stop(self, name: str) -> Status:
        """End a name's engine and prove that it is gone; harmless when nothing runs."""
        ...
