"""Errors of prediction."""

from __future__ import annotations

from outrider.errors import OutriderError


class PredictError(OutriderError):
    """Cells, a profile or an acceptance that cannot be used, or a place that cannot be predicted."""
