"""Drift guards: is a place upstream still what the ledger knows?"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from outrider.patches.ledger import PatchError

if TYPE_CHECKING:
    from outrider.patches.ledger import Guard


def region(text: str, start: str, end: str | None) -> str:
    """Lines from the first that contains `start` to the one before the next that contains `end`.

    Trailing blanks do not count, so that a formatter's run is no drift.

    Raises:
        PatchError: a marker is absent.
    """
    lines = [line.rstrip() for line in text.splitlines()]
    first = next((i for i, line in enumerate(lines) if start in line), None)
    if first is None:
        raise PatchError(f"the line {start!r} is gone")
    if end is None:
        return "\n".join(lines[first:])
    last = next((i for i in range(first + 1, len(lines)) if end in lines[i]), None)
    if last is None:
        raise PatchError(f"the line {end!r} is gone")
    return "\n".join(lines[first:last])


def digest(text: str, guard: Guard) -> str:
    """SHA-256 of a guard's region in the text of its file."""
    return hashlib.sha256(region(text, guard.start, guard.end).encode()).hexdigest()
