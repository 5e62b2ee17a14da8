"""One kind of finding: what its code means, wherever it is found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "advisory", "info"]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of finding.

    Attributes:
        code: stable: area and number. A retired code is not used again.
        severity: `error`: it will not work, or will be silently ruined; `advisory`: it works, worse than it
            could; `info`: a fact, or something that could not be checked.
        title: what is wrong, in a few words.
        explanation: why that matters, with the source where the fact comes from one.
        fix: what to do.
    """

    code: str
    severity: Severity
    title: str
    explanation: str
    fix: str
