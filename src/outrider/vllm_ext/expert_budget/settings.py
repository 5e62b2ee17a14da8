"""Settings of the expert budget: one JSON object in the environment, written by the engine adapter."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

VARIABLE = "OUTRIDER_EXPERT_BUDGET"
# Name of the entry point, for VLLM_PLUGINS.
PLUGIN = "outrider_expert_budget"

Mode = Literal["reroute", "drop"]
MODES: tuple[Mode, ...] = ("reroute", "drop")


class SettingsError(ValueError):
    """The settings cannot be used; the engine must not start, for it would serve something else than was asked for."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How many experts a layer may read in a decode step, and what becomes of the others' tokens.

    Attributes:
        experts: B, the same at every batch size; or
        share: B as a share of the experts that uniform routing would touch at the step's number of tokens.
        mode: `reroute` chooses anew inside the budget; `drop` leaves the lost experts' part of the output out.
        report_every: budgeted steps between two log lines that count experts; 0 is never. Counting waits for the
            device and adds work to every step: for checking, not for measuring.
    """

    experts: int | None = None
    share: float | None = None
    mode: Mode = "reroute"
    report_every: int = 0

    def __post_init__(self) -> None:
        """Refuse what has no meaning for any model."""
        if (self.experts is None) == (self.share is None):
            raise SettingsError("one of experts and share, not both and not none")
        if self.experts is not None and (not _is_whole(self.experts) or self.experts < 1):
            raise SettingsError(f"experts {self.experts!r}: a whole number from 1")
        if self.share is not None and (not isinstance(self.share, int | float) or not 0 < self.share <= 1):
            raise SettingsError(f"share {self.share!r}: above 0 and at most 1")
        if self.mode not in MODES:
            raise SettingsError(f"mode {self.mode!r}: one of {', '.join(MODES)}")
        if not _is_whole(self.report_every) or self.report_every < 0:
            raise SettingsError(f"report_every {self.report_every!r}: a whole number of steps, 0 for never")

    def budget(self, tokens: int, experts: int, per_token: int) -> int:
        """B for a step.

        Args:
            tokens: T of the step, padding left out.
            experts: N of the layer.
            per_token: its top_k.

        Returns:
            Between top_k, below which no token could be routed, and N, which is no budget.

        Raises:
            SettingsError: a fixed B is below top_k.
        """
        if self.experts is not None:
            if self.experts < per_token:
                raise SettingsError(f"experts {self.experts} is below top_k {per_token}: no token could be routed")
            return min(self.experts, experts)
        wanted = math.ceil((self.share or 1.0) * expected_union(tokens, experts, per_token))
        return min(max(wanted, per_token), experts)

    def describe(self) -> str:
        """For logs and reports."""
        if self.experts is not None:
            return f"at most {self.experts} experts a layer ({self.mode})"
        return f"at most {self.share:.0%} of the experts a layer that uniform routing would touch ({self.mode})"


def expected_union(tokens: int, experts: int, per_token: int) -> float:
    """Distinct experts that uniform routing touches: N (1 - (1 - top_k/N)^T), as in `predict.experts`."""
    return experts * (1 - (1 - per_token / experts) ** tokens)


def read_settings(env: Mapping[str, str]) -> Settings | None:
    """Settings from the environment; None if no budget is asked for.

    Raises:
        SettingsError: the variable is no JSON object, or holds a field or value that is not known.
    """
    text = env.get(VARIABLE)
    if text is None:
        return None
    try:
        raw: Any = json.loads(text)
    except ValueError as error:
        raise SettingsError(f"{VARIABLE} is no JSON: {error}") from None
    known = [field.name for field in fields(Settings)]
    if not isinstance(raw, dict) or not raw.keys() <= set(known):
        raise SettingsError(f"{VARIABLE} must be an object with only these fields: {', '.join(known)}")
    try:
        return Settings(**raw)
    except SettingsError as error:
        raise SettingsError(f"{VARIABLE}: {error}") from None


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
