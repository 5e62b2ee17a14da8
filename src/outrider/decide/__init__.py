"""From measured points to a choice that can be run."""

from outrider.decide.policy import Choice, choose

__all__ = ["Choice", "choose"]
