"""What a training run is asked to do: the stack's `training` section, laid over defaults, then over flags."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from outrider.train.errors import TrainError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from outrider.stack.schema import Stack


@dataclass(frozen=True, slots=True)
class Recipe:
    """One training run.

    Attributes:
        aux_layers: target layers whose hidden states the head reads, as the engine counts them (1-based outputs;
            the last layer's output is added at extraction, because it is what the head learns to predict).
        draft_vocab_size: tokens that the head can propose; None for the target's whole vocabulary.
        draft_config: decoder geometry for targets whose own head counts do not fit a head (MLA), as a JSON-like
            mapping for `speculators train --draft-config`; None derives it from the target.
        mask_token_id: token that marks masked positions; None lets speculators choose.
        text_only: leave the vision tower of a multimodal target out while extracting.
        online: make hidden states anew for every batch instead of keeping them on disk.
        k: draft tokens a step at serving; also the number of unrolled steps in training.
        samples: prompts to answer.
        check_samples: held-out prompts that `check` serves.
        seq_len: tokens of one training sample at most, and of one packed training batch times `pack`.
        pack: samples of `seq_len` tokens that one packed batch holds.
        max_tokens: tokens of one regenerated answer at most (prompt included for follow-up turns).
        temperatures: sampling temperature of a conversation to its share; shares add up to 1.
        concurrency: requests in flight while regenerating and extracting.
        clients: client processes that share the requests.
        epochs: passes over the data.
        lr: learning rate (Muon and AdamW alike, as speculators has it).
        validation_share: share of samples that is held back for the loss after each epoch.
        workers: data loader processes.
        floor: acceptance length on held-out chat prompts under which `export` refuses.
        seed: of prompts, sampling and training.
    """

    aux_layers: tuple[int, ...]
    draft_vocab_size: int | None = None
    draft_config: Mapping[str, Any] | None = None
    mask_token_id: int | None = None
    text_only: bool = False
    online: bool = False
    k: int = 3
    samples: int = 10_000
    check_samples: int = 160
    seq_len: int = 1024
    pack: int = 8
    max_tokens: int = 384
    temperatures: Mapping[str, float] = field(default_factory=lambda: {"0.0": 0.6, "0.8": 0.4})
    concurrency: int = 64
    clients: int = 1
    epochs: int = 8
    lr: float = 1e-3
    validation_share: float = 0.04
    workers: int = 4
    floor: float = 1.5
    seed: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for manifests and cards."""
        return asdict(self)

    def with_flags(self, **flags: object) -> Recipe:
        """This recipe with every flag that is not None laid over it."""
        given = {name: value for name, value in flags.items() if value is not None}
        return replace(self, **given)  # type: ignore[arg-type]


def recipe_of(stack: Stack) -> Recipe:
    """The recipe that a stack declares.

    Raises:
        TrainError: the stack has no `training` section.
    """
    section = getattr(stack, "training", None)
    if section is None:
        raise TrainError(
            f"stack {stack.name} says nothing about training a drafter",
            evidence="it has no `training` section",
            next_step="add one; stacks/smollm2-cpu.yaml shows a small one, docs/training.md explains each field",
        )
    known = {f.name for f in fields(Recipe)}
    given = {name: value for name, value in section.model_dump().items() if name in known and value is not None}
    return Recipe(**given)
