"""A run as it is watched: a table that stays in place on a terminal, one line a phase elsewhere."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Any

from rich.live import Live
from rich.markup import escape
from rich.table import Table

from outrider.provision.events import Progress, remaining_s

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rich.console import Console

_COLOURS = {"ok": "green", "failed": "bold red", "unreachable": "bold red"}


class ProgressView:
    """Shows a `Progress`; events may come from another thread.

    Args:
        console: where to; standard error, when standard output carries JSON.
        title: what runs.
        earlier: seconds of each phase in the last run of this kind.
    """

    def __init__(self, console: Console, title: str, earlier: Mapping[str, float]) -> None:
        self.progress = Progress()
        self._console = console
        self._title = title
        self._earlier = earlier
        self._began = self._phase_began = time.monotonic()
        self._phases = 0
        self._lock = threading.Lock()
        self._said: dict[str, str] = {}

    @contextlib.contextmanager
    def shown(self) -> Iterator[None]:
        """Show it while the block runs."""
        if not self._console.is_terminal:
            left = remaining_s(self._earlier, {}, 0.0)
            self._console.print(self._title + ("" if left is None else f", about {clock(left)}"), markup=False)
            yield
            return
        with Live(get_renderable=self.table, console=self._console, refresh_per_second=4):
            yield

    def take(self, event: dict[str, Any]) -> None:
        """Take in an event of ansible-runner."""
        with self._lock:
            self.progress.take(event)
            if len(self.progress.phases) != self._phases:
                self._phases, self._phase_began = len(self.progress.phases), time.monotonic()
            lines = [] if self._console.is_terminal else list(self._news())
        for line in lines:
            self._console.print(line, markup=False, soft_wrap=True)

    @property
    def elapsed_s(self) -> float:
        """Seconds since this was made."""
        return time.monotonic() - self._began

    def table(self) -> Table:
        """The state of all nodes now."""
        with self._lock:
            left = remaining_s(self._earlier, self.progress.phases, time.monotonic() - self._phase_began)
            ahead = "" if left is None else f", about {clock(left)} to go"
            table = Table(title=f"{self._title}: {clock(self.elapsed_s)}{ahead}", title_justify="left")
            for name in ("node", "phase", "task", "done", "changed"):
                table.add_column(name, justify="right" if name in {"done", "changed"} else "left", overflow="ellipsis")
            for name, node in self.progress.nodes.items():
                colour = _COLOURS.get(node.verdict, "cyan")
                state = node.task if node.verdict == "running" else node.verdict
                table.add_row(
                    escape(name), f"[{colour}]{escape(node.phase)}[/]", escape(state), str(node.done), str(node.changed)
                )
        return table

    def _news(self) -> Iterator[str]:
        for name, node in self.progress.nodes.items():
            if self._said.get(name) != node.phase:
                self._said[name] = node.phase
                yield f"{clock(self.elapsed_s):>7}  {name}  {node.phase}"


def clock(seconds: float) -> str:
    """Seconds as `m:ss`."""
    whole = round(seconds)
    return f"{whole // 60}:{whole % 60:02d}"
