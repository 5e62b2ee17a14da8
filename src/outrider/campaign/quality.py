"""What is known of the answers of budgeted variants: `outrider parity` with baseline, kept beside the run's cells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import ValidationError

from outrider.campaign.parity_result import ParityResult
from outrider.engine import adapter
from outrider.errors import CampaignError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from outrider.stack import Stack

NOT_MEASURED = "quality not measured"
_GOOD = frozenset({"equivalent", "higher"})


@dataclass(frozen=True, slots=True)
class Quality:
    """Of one variant whose speed is bought with its answers.

    Attributes:
        variant: which.
        settings: what makes it lossy.
        result: its parity with a variant that has no budget; None if that was not measured.
        file: where the result belongs.
    """

    variant: str
    settings: str
    result: ParityResult | None
    file: Path

    @property
    def text(self) -> str:
        """For the column beside the speed."""
        if self.result is None:
            return NOT_MEASURED
        agreement, change = self.result.agreement, self.result.accuracy.difference
        return (
            f"answers agree over {agreement.share.mid:.0%} of their {agreement.unit}; accuracy {change.low:+.1%} to "
            f"{change.high:+.1%} against {self.result.a}: {self.result.verdict}"
        )

    @property
    def proven(self) -> bool:
        """Whether it may be recommended: its accuracy was measured and is not lower, by the margin of the test."""
        return self.result is not None and self.result.verdict in _GOOD

    def advice(self, stack: str) -> str:
        """How to come to know more; empty if it is known."""
        return "" if self.result else f"outrider parity {stack} baseline {self.variant} --json {self.file}"


def unproven(quality: Mapping[str, Quality]) -> set[str]:
    """Variants that must not be recommended, however fast they are."""
    return {name for name, known in quality.items() if not known.proven}


def quality_of(stack: Stack, directory: Path) -> dict[str, Quality]:
    """Every variant with an expert budget, with what the run's directory knows of its answers.

    Raises:
        CampaignError: a file that should hold a variant's parity holds something else.
    """
    return {name: _read(stack, name, directory) for name, v in stack.variants.items() if v.expert_budget is not None}


def _read(stack: Stack, variant: str, directory: Path) -> Quality:
    file = directory / f"parity-{variant}.json"
    engine = adapter(stack.engine_of(variant).name)
    settings = "; ".join(engine.lossy_settings(stack, variant))
    if not file.is_file():
        return Quality(variant, settings, None, file)
    again = f"measure it: outrider parity {stack.name} baseline {variant} --json {file}"
    try:
        result = ParityResult.model_validate_json(file.read_text(encoding="utf-8"))
    except ValidationError as error:
        first = error.errors()[0]
        evidence = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise CampaignError(f"{file} is no result of outrider parity", evidence=evidence, next_step=again) from None
    against = stack.variants.get(result.a)
    fits = result.b == variant and result.model == stack.target.served_name and against is not None
    if not fits or (against is not None and against.expert_budget is not None):
        raise CampaignError(
            f"{file} does not hold {variant} against a variant without a budget",
            evidence=f"it holds {result.b} against {result.a}, model {result.model}",
            next_step=again,
        )
    return Quality(variant, settings, result, file)
