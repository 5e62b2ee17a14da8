"""Errors of provisioning."""

from __future__ import annotations

from outrider.errors import OutriderError


class ProvisionError(OutriderError):
    """An inventory, a playbook or a node report that provisioning cannot work with."""
