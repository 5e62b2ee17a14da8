"""The decision tree: n-gram, then a drafter that exists, then training one; each gate with its evidence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from outrider.stack.schema import LOOKUP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from outrider.decide.options import Option
    from outrider.decide.places import PlaceChoice
    from outrider.decide.training_cost import TrainingCost
    from outrider.stack import Stack

GateVerdict = Literal["go", "no-go", "measure"]


@dataclass(frozen=True, slots=True)
class Gate:
    """One question of the tree.

    Attributes:
        name: `ngram`, `existing drafter` or `train`.
        verdict: `go`, `no-go`, or `measure` where the evidence does not decide.
        why: one sentence.
        evidence: figures behind it, each with its source.
    """

    name: str
    verdict: GateVerdict
    why: str
    evidence: tuple[str, ...] = ()


def gate_tree(stack: Stack, choices: Sequence[PlaceChoice], cost: TrainingCost | None) -> list[Gate]:
    """All gates, in order.

    Args:
        stack: which variants look up and which have drafters.
        choices: the surface.
        cost: of training a drafter; None where the target is not in the catalogue.
    """
    methods = {name: v.speculation.method for name, v in stack.variants.items() if v.speculation}
    lookup = [o for c in choices for o in c.options if methods.get(o.variant) in LOOKUP]
    drafted = [o for c in choices for o in c.options if o.k and o.variant in methods and o not in lookup]
    existing = _gate(
        "existing drafter",
        drafted,
        "no cell and no reported acceptance length of any drafter: serve one at two loads",
    )
    return [
        _gate("ngram", lookup, "n-gram costs nothing to try and depends on the text: measure it at one load"),
        existing,
        _train(choices, drafted, existing, cost),
    ]


def _gate(name: str, options: Sequence[Option], unknown: str) -> Gate:
    if not options:
        return Gate(name, "measure", unknown)
    wins = [o for o in options if o.speedup and o.speedup.low > 1]
    lost = [o for o in options if o.speedup and o.speedup.high < 1]
    best = max(options, key=lambda o: o.speedup.mid if o.speedup else 0.0)
    worst = min(options, key=lambda o: o.speedup.mid if o.speedup else 0.0)
    evidence = (f"best: {_told(best)}", f"worst: {_told(worst)}")
    if not wins:
        verdict: GateVerdict = "no-go" if len(lost) == len(options) else "measure"
        return Gate(name, verdict, f"no gain beyond doubt at any of {len(options)} places", evidence)
    if all(o.source == "prior" for o in wins):
        why = f"expected to win at {len(wins)} of {len(options)} places, from the stack alone: measure before serving"
        return Gate(name, "measure", why, evidence)
    return Gate(name, "go", f"wins beyond doubt at {len(wins)} of {len(options)} places", evidence)


def _train(
    choices: Sequence[PlaceChoice], drafted: Sequence[Option], existing: Gate, cost: TrainingCost | None
) -> Gate:
    evidence = [cost.sentence] if cost else ["cost not known: the target is not in train/targets.yaml"]
    losing = [o for o in drafted if o.speedup and o.speedup.high < 1 and o.break_even]
    if not drafted:
        return Gate("train", "measure", "try the drafters that exist first: their break-even decides", tuple(evidence))
    reach = min(o.k for o in drafted) + 1.0
    within = [o for o in losing if o.break_even and o.break_even.mid < _reachable(o)]
    if losing:
        hardest = max(losing, key=lambda o: o.break_even.mid if o.break_even else 0.0)
        evidence.append(f"hardest losing place: {_told(hardest)}")
    if existing.verdict == "measure":
        return Gate("train", "measure", "the drafters that exist are not measured yet", tuple(evidence))
    if not losing:
        why = f"existing drafters lose beyond doubt at none of {len(choices)} places"
        return Gate("train", "no-go", why, tuple(evidence))
    if not within:
        why = f"no losing place comes within reach of a drafter that yields at most {reach:.0f} tokens a step"
        return Gate("train", "no-go", why, tuple(evidence))
    why = (
        f"a drafter with {min(o.break_even.mid for o in within if o.break_even):.2f} or more tokens a step would win "
        f"{len(within)} of {len(losing)} losing places"
    )
    if existing.verdict == "go" and len(within) < len(drafted) / 2:
        return Gate("train", "no-go", f"{why}; the existing drafter already wins most others", tuple(evidence))
    return Gate("train", "go" if cost and cost.fits else "measure", why, tuple(evidence))


def _reachable(option: Option) -> float:
    """Tokens a step that good public heads reach: conditional acceptance 0.8 at every position."""
    return float((1 - 0.8 ** (option.k + 1)) / 0.2)


def _told(option: Option) -> str:
    gain = option.speedup
    text = f"{option.variant} k={option.k} at {option.batch} users, {option.context:.0f} tokens"
    if gain is not None:
        text += f": {gain.mid:.2f}x ({gain.low:.2f}-{gain.high:.2f})"
    if option.break_even is not None:
        text += f", break-even {option.break_even.mid:.2f}, gets {option.tokens_per_step:.2f} tokens a step"
    return f"{text} ({option.source})"
