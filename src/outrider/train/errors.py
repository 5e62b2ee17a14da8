"""Errors of training."""

from __future__ import annotations

from outrider.errors import OutriderError


class TrainError(OutriderError):
    """A training run that cannot start, go on, or whose head is not good enough."""
