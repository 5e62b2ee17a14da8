"""Applies unified diffs, strictly: every line must be where the diff says, else nothing is changed.

`patch(1)` would search nearby and accept fuzz; a drifted file must fail instead.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from outrider.patches.ledger import PatchError

_HUNK = re.compile(r"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


@dataclass(frozen=True, slots=True)
class Hunk:
    """Consecutive lines to replace.

    Attributes:
        before: lines as they are, context included.
        after: lines as they become.
    """

    before: tuple[str, ...]
    after: tuple[str, ...]


def parse_diff(text: str) -> dict[str, tuple[Hunk, ...]]:
    """File (without the `a/` prefix) to its hunks.

    Raises:
        PatchError: the text is no unified diff.
    """
    files: dict[str, list[Hunk]] = {}
    current: list[Hunk] | None = None
    before: list[str] = []
    after: list[str] = []
    left = (0, 0)
    for line in text.splitlines():
        if left == (0, 0) and line.startswith("--- "):
            current = files.setdefault(line[4:].split("\t")[0].removeprefix("a/"), [])
        elif left == (0, 0) and (match := _HUNK.match(line)):
            if current is None:
                break
            left = (int(match[2] or 1), int(match[4] or 1))
            before, after = [], []
        elif left != (0, 0):
            mark, body = (line[0], line[1:]) if line else (" ", "")
            if mark in " -":
                before.append(body)
                left = (left[0] - 1, left[1])
            if mark in " +":
                after.append(body)
                left = (left[0], left[1] - 1)
            if left == (0, 0) and current is not None:
                current.append(Hunk(tuple(before), tuple(after)))
    if not files or left != (0, 0) or any(not hunks for hunks in files.values()):
        raise PatchError("not a whole unified diff", evidence=text[:200])
    return {name: tuple(hunks) for name, hunks in files.items()}


def apply_hunks(text: str, hunks: tuple[Hunk, ...], name: str) -> str:
    """The text with every hunk applied; each `before` must occur exactly once.

    Raises:
        PatchError: a hunk's lines are absent or ambiguous.
    """
    lines = text.splitlines()
    for hunk in hunks:
        width = len(hunk.before)
        places = [i for i in range(len(lines) - width + 1) if tuple(lines[i : i + width]) == hunk.before]
        if len(places) != 1:
            raise PatchError(
                f"a hunk for {name} fits {len(places)} places instead of one",
                evidence="\n".join(hunk.before[:4]),
                next_step="upstream changed: look at the place again and renew the patch, or drop it",
            )
        lines[places[0] : places[0] + width] = hunk.after
    return "\n".join(lines) + ("\n" if text.endswith("\n") else "")
