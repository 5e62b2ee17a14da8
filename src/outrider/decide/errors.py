"""Errors of deciding."""

from __future__ import annotations

from outrider.errors import OutriderError


class DecideError(OutriderError):
    """A decision that cannot be made from what is there, or configuration that cannot be emitted."""
