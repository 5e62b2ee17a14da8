"""Was the machine ours while a cell was measured? CPU time that neither engine nor client used."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING

import psutil

from outrider.load.result import Finding

if TYPE_CHECKING:
    from collections.abc import Iterable

# Share of all cores that others may use: a decode step that waits for a core shows from a few per cent on.
TOLERATED = 0.08


class Bystanders:
    """Counts, from its making on, the CPU time of processes that are not part of the measurement.

    Args:
        engines: main processes of the engines; with their descendants, and ours, they are the measurement.
    """

    def __init__(self, engines: Iterable[int]) -> None:
        self._roots = {os.getpid(), *engines}
        self._began = time.monotonic()
        self._busy, self._own = _machine_busy_s(), self._own_s()

    def finding(self) -> Finding | None:
        """`machine_busy` if others used more than is tolerated since; None otherwise."""
        wall_s, cores = time.monotonic() - self._began, os.cpu_count() or 1
        others = ((_machine_busy_s() - self._busy) - (self._own_s() - self._own)) / wall_s
        if others <= TOLERATED * cores:
            return None
        return Finding(
            code="machine_busy",
            severity="flagged",
            evidence=f"other processes used {others:.2f} of {cores} cores while this was measured",
            fix="measure on a machine that does nothing else",
        )

    def _own_s(self) -> float:
        """CPU seconds of the measurement's processes, ended children of ours included."""
        total = 0.0
        seen: set[int] = set()
        for root in self._roots:
            with contextlib.suppress(psutil.Error):
                process = psutil.Process(root)
                for member in (process, *process.children(recursive=True)):
                    if member.pid in seen:
                        continue
                    seen.add(member.pid)
                    with contextlib.suppress(psutil.Error):
                        times = member.cpu_times()
                        total += times.user + times.system + times.children_user + times.children_system
        return total


def _machine_busy_s() -> float:
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - getattr(times, "iowait", 0.0) - getattr(times, "guest", 0.0))
