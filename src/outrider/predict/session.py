"""Puts a stack, its cells and a profile together into a fitted model."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from outrider.predict.acceptance import Acceptance, parse_acceptance
from outrider.predict.errors import PredictError
from outrider.predict.fit import Fit, fit
from outrider.predict.traffic import draft_bytes, machine_of, target_shape
from outrider.stack.schema import LOOKUP

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from outrider.predict.observations import Observation
    from outrider.predict.shares import Shares
    from outrider.predict.surface import Wanted
    from outrider.stack import Speculation, Stack, Variant

# Methods that propose one block: their k is a property of the weights.
_BLOCK = frozenset({"dflash", "dspark", "mtp"})


@dataclass(frozen=True, slots=True)
class Session:
    """A stack with a model fitted to what was at hand.

    Attributes:
        stack: the stack.
        fit: the model.
        given: acceptance that the user gave, which replaces what cells show.
    """

    stack: Stack
    fit: Fit
    given: Acceptance | None = None

    def draft_bytes(self, variant: str) -> float:
        """Weights that a drafting pass of a variant reads on one GPU."""
        return _draft_bytes(self.stack, variant)

    def acceptance(self, one: Wanted) -> Acceptance | None:
        """Acceptance at a place: given, else None where cells show it, else what the drafter's authors report."""
        if self.given is not None:
            return self.given
        if self.fit.yields.acceptance(one.variant, one.workload) is not None:
            return None
        return reported(self.stack, one.variant)

    def speculating(self) -> list[str]:
        """Variants with a fixed k that a decision may rest on.

        Those that were measured; without any, those of the stack's campaign whose yield is given or reported. A
        reported acceptance length never stands against a measured one: the flagship's drafter reports 2.97 and was
        measured at 2.1 by others.
        """
        static = [n for n, v in self.stack.variants.items() if _is_predicted(v)]
        measured = [name for name in static if self.fit.yields.acceptance(name)]
        if measured:
            return measured
        asked = self.stack.campaign.variants or tuple(static)
        return [n for n in static if n in asked and (self.given or reported(self.stack, n))]

    def check_k(self, variant: str, k: int) -> None:
        """Refuse a k that the drafter cannot propose.

        Raises:
            PredictError: the method proposes blocks of a smaller size.
        """
        spec = self.stack.variant(variant).speculation
        if spec is not None and spec.method in _BLOCK and k > spec.k:
            raise PredictError(
                f"{variant} proposes at most {spec.k} tokens, not {k}",
                evidence=f"method {spec.method}: the block size is part of its weights",
                next_step=f"ask for --k up to {spec.k}",
            )


def open_session(
    stack: Stack,
    cells: Sequence[Observation] = (),
    *,
    shares: Shares | None = None,
    acceptance: str | None = None,
    config: Mapping[str, Any] | None = None,
    draws: int = 60,
) -> Session:
    """Fit the model to what is at hand.

    Raises:
        PredictError: shape or accelerator unknown, or an acceptance that cannot be.
    """
    machine = machine_of(stack, config)
    fitted = fit(machine, cells, lambda name: _draft_bytes(stack, name), shares=shares, draws=draws)
    given = parse_acceptance(acceptance, _declared_k(stack)) if acceptance else None
    return Session(stack, fitted, given)


def _is_predicted(variant: Variant) -> bool:
    spec = variant.speculation
    return bool(spec and not spec.schedule and not spec.auto and not variant.expert_budget)


def reported(stack: Stack, variant: str) -> Acceptance | None:
    """Mean of the acceptance lengths that a drafter's authors publish, at the k of the stack; None without any."""
    spec = stack.variants[variant].speculation if variant in stack.variants else None
    if spec is None or spec.drafter is None or not spec.drafter.reported_al:
        return _synthetic(spec)
    lengths = list(spec.drafter.reported_al.values())
    mean = math.fsum(lengths) / len(lengths)
    return Acceptance.of_length(min(mean, spec.k + 1.0), spec.k, f"reported by the drafter's authors, k={spec.k}")


def _synthetic(spec: Speculation | None) -> Acceptance | None:
    if spec is None:
        return None
    source = "synthetic acceptance, set by the stack"
    rates, length = (spec.options.get(f"synthetic_acceptance_{form}") for form in ("rates", "length"))
    if isinstance(rates, list | tuple):
        return Acceptance.of_positions(rates, source)
    return Acceptance.of_length(float(length), spec.k, source) if isinstance(length, int | float) else None


def _draft_bytes(stack: Stack, variant: str) -> float:
    """Of a variant, or of the stack's first drafter where cells come under a name that the stack does not have."""
    if variant in stack.variants:
        spec = stack.variants[variant].speculation
        return draft_bytes(stack, spec) if spec is not None else 0.0
    if variant.startswith(("ngram", "suffix")):
        return 0.0
    drafters = (v.speculation for v in stack.variants.values() if v.speculation and v.speculation.drafter)
    spec = next(drafters, None)
    if spec is not None:
        return draft_bytes(stack, spec)
    shape = target_shape(stack)
    return 2.0 * (10 * shape.hidden**2 + shape.vocabulary * shape.hidden) / stack.parallel.tensor


def _declared_k(stack: Stack) -> int:
    """The k at which a given rate or length holds: that of the first variant with a drafter, else of any."""
    specs = [v.speculation for v in stack.variants.values() if v.speculation]
    own = [spec for spec in specs if spec.method not in LOOKUP] or specs
    if not own:
        raise PredictError("no variant of the stack speculates", next_step="add one to `variants`")
    return own[0].k
