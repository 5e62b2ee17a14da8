"""Errors of profiling."""

from __future__ import annotations

from outrider.errors import OutriderError


class ProfileError(OutriderError):
    """A trace that cannot be read or shows no decode step."""
