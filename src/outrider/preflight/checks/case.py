"""What the checks of one variant look at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from outrider.preflight.engine_tables import EngineTable
    from outrider.preflight.facts.drafter import DrafterView, Runner
    from outrider.preflight.facts.shape import Shape
    from outrider.preflight.reading import Checkpoint
    from outrider.stack import Speculation, Stack, Variant


@dataclass(frozen=True, slots=True)
class Case:
    """One variant with everything that was read for it.

    Attributes:
        stack: the stack.
        name: the variant's name.
        table: what the pinned engine supports; None if there is no table.
        target: the target's files.
        shape: the target's dimensions, None if its config is not usable.
        runner: model runner that the engine will take.
        drafter: the drafter's files, None without one or if they are not at hand.
        view: the drafter's config as the engine sees it.
        weights: the target's tensors as (name, bytes), experts of a layer together; None without headers.
    """

    stack: Stack
    name: str
    table: EngineTable | None
    target: Checkpoint
    shape: Shape | None
    runner: Runner
    drafter: Checkpoint | None = None
    view: DrafterView | None = None
    weights: tuple[tuple[str, int], ...] | None = None

    @property
    def variant(self) -> Variant:
        """The variant itself."""
        return self.stack.variant(self.name)

    @property
    def spec(self) -> Speculation | None:
        """How it speculates."""
        return self.variant.speculation

    @property
    def flags(self) -> dict[str, Any]:
        """Engine flags, the variant's over the stack's."""
        return {**self.stack.engine.flags, **self.variant.flags}

    @property
    def env(self) -> dict[str, str]:
        """Environment, the variant's over the stack's over the node's."""
        return {**self.stack.node.env, **self.stack.env, **self.variant.env}

    def place(self, field: str) -> str:
        """`stack NAME, variants.V.field`, for `where` of findings."""
        return f"stack {self.stack.name}, variants.{self.name}.{field}"
