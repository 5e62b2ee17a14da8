"""What training a drafter for a stack would cost, by `train plan`'s arithmetic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from outrider.train import catalogue
from outrider.train.errors import TrainError
from outrider.train.plan import Workload, plan_on, verdict
from outrider.train.recipe import Recipe, recipe_of

if TYPE_CHECKING:
    from outrider.stack import Stack

# The one public run with a bill for a target of the flagship's size: 600k samples, 6B tokens, ~1,500 H200-hours.
_PUBLIC_RUN = Workload(samples=600_000, seq_len=10_000)


@dataclass(frozen=True, slots=True)
class TrainingCost:
    """A plan in short.

    Attributes:
        gpu_hours, wall_hours: on the stack's own node.
        fits: whether it fits there or on a machine of the catalogue.
        sentence: verdict with what was assumed.
    """

    gpu_hours: float
    wall_hours: float
    fits: bool
    sentence: str


def training_cost(stack: Stack) -> TrainingCost | None:
    """Cost of the stack's recipe; of the public run's size where it declares none; None for unknown targets."""
    try:
        target = catalogue.target_shape(stack, None)
    except TrainError:
        return None
    if stack.training is not None:
        recipe = recipe_of(stack)
        work = Workload(recipe.samples, recipe.seq_len, epochs=recipe.epochs, k=recipe.k)
        scale = "by the stack's recipe"
    else:
        recipe = Recipe(aux_layers=(2, target.layers // 2, target.layers - 3), draft_vocab_size=32_000)
        work, scale = _PUBLIC_RUN, "at the size of the one public run with a bill (600k samples, 6B tokens)"
    head = catalogue.head_shape(target, recipe)
    name = catalogue.default_node(stack)
    here = plan_on(catalogue.find_node(name, target), target, head, work)
    others = [plan_on(catalogue.find_node(o, target), target, head, work) for o in catalogue.node_names() if o != name]
    fits = here.fits or any(other.fits for other in others)
    text = f"training {scale} {verdict(here, others)}"
    return TrainingCost(here.gpu_hours, here.wall_hours, fits, text)
