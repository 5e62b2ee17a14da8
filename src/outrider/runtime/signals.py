"""Turning termination signals into an ordinary unwinding of `with` blocks."""

from __future__ import annotations

import contextlib
import signal
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType


def _exit(number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)


@contextlib.contextmanager
def unwinding_on_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP leave `with` blocks as Ctrl-C does, so that engines end before we do.

    Without it the default action ends us at once, and the supervisor ends the engine a moment later.
    Only for the main thread; exit code 128 + signal number, as shells report it.
    """
    before = {number: signal.signal(number, _exit) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
