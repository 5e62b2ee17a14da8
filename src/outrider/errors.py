"""The one exception tree.

Every error that a user can cause or mend says what was wrong, where that was seen, and what to do next.
"""

from __future__ import annotations


class OutriderError(Exception):
    """A failure that the user can act on.

    Args:
        cause: what was wrong, in one sentence.
        evidence: where it was seen: `file:line`, a log line, a response; several lines are fine.
        next_step: what to do about it.
    """

    def __init__(self, cause: str, *, evidence: str = "", next_step: str = "") -> None:
        self.cause = cause
        self.evidence = evidence
        self.next_step = next_step
        super().__init__(str(self))

    def __str__(self) -> str:
        parts = [self.cause]
        if self.evidence:
            parts.append(f"  seen: {self.evidence}")
        if self.next_step:
            parts.append(f"  next: {self.next_step}")
        return "\n".join(parts)


class StackError(OutriderError):
    """A stack file that cannot be read, or a variant that it does not have."""


class ModelError(OutriderError):
    """Weights or tokenizer files that are absent, corrupt or not what the stack pins."""


class EngineError(OutriderError):
    """An engine that did not start, died, or spoke a protocol that its adapter does not know."""


class RuntimeStateError(OutriderError):
    """A port, process or device that is not in the state a runtime needs."""


class RunsAlreadyError(RuntimeStateError):
    """Somebody else serves what was to be started."""


class LoadError(OutriderError):
    """A load test that could not be run or whose outcome is not a measurement."""


class CampaignError(OutriderError):
    """A campaign whose plan, store or resume state does not fit."""
