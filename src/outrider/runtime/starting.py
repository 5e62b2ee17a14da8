"""The step that every runtime shares: wait until a started engine answers, and say why if it does not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from outrider.runtime import diagnosis, readiness

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from outrider.engine.base import Launch
    from outrider.errors import EngineError
    from outrider.runtime.base import Progress


class Starting(Protocol):
    """An engine whose start is under way, as its runtime sees it."""

    @property
    def name(self) -> str:
        """`<stack>/<variant>`."""
        ...

    @property
    def url(self) -> str:
        """Base URL of the API."""
        ...

    @property
    def log_place(self) -> str:
        """Where its whole log is: a file, or the command that shows it."""
        ...

    def log_lines(self, last: int | None = None) -> Sequence[str]:
        """Its output, oldest first."""
        ...

    def new_lines(self) -> list[str]:
        """Log lines since the last call."""
        ...

    def bytes_read(self) -> int:
        """Bytes that its processes have read from storage so far."""
        ...

    def died_within(self, timeout_s: float) -> bool:
        """Wait for its end, at most this long; True as soon as it has ended."""
        ...

    def failure(self) -> EngineError | None:
        """Why it is not alive; None while it lives."""
        ...


def await_answer(
    engine: Starting,
    launch: Launch,
    budget: readiness.Budget,
    *,
    expected_s: float | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> None:
    """Return once the engine answers its health path.

    Args:
        engine: what was started.
        launch: gives the health path and the lines that a start passes.
        budget: how long it may take.
        expected_s: duration of the last start, if known.
        on_progress: called at each look.

    Raises:
        EngineError: it died, or was given up; with the cause that its log names. It is not stopped here.
    """
    outcome = readiness.wait_ready(
        launch,
        engine.url,
        budget,
        readiness.StartProgress(launch.progress, expected_s),
        new_lines=engine.new_lines,
        bytes_read=engine.bytes_read,
        died_within=engine.died_within,
        on_progress=on_progress or (lambda _progress: None),
    )
    if failure := engine.failure():
        raise failure
    if outcome:
        raise diagnosis.explain(
            f"the engine of {engine.name} did not become ready",
            engine.log_lines(),
            ending=f"given up after its budget of {budget}; {launch.health_path} said last: {outcome}",
            code=None,
            oom_kills=0,
            log=engine.log_place,
        )
