"""Nearest-name hints for whatever people type."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known name closest to `word`, None if none is close."""
    by_folded = {name.lower().replace("_", "-"): name for name in known}
    found = get_close_matches(word.lower().replace("_", "-"), by_folded, n=1, cutoff=0.6)
    return by_folded[found[0]] if found else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?`, or nothing."""
    hit = nearest(word, known)
    return f"; did you mean {hit!r}?" if hit else ""
