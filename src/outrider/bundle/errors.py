"""What can go wrong with a bundle."""

from __future__ import annotations

from outrider.errors import OutriderError


class BundleError(OutriderError):
    """A bundle that cannot be made."""
