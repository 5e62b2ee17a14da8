"""Which cells, in which order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from pydantic import BaseModel, ConfigDict, Field

from outrider.campaign.cell import CellKey
from outrider.errors import CampaignError
from outrider.load.workloads import is_workload, prompt_length, workload_names
from outrider.stack.names import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from outrider.stack import Stack

# Rounds that every user of a closed loop makes, so that a cell's figures are not those of its edges.
_ROUNDS = 6
# Step cost is measured in waves of equal answers, which have no edges.
_WAVES = 2
# From so many tokens on, reading the prompts of a wave takes as long as its answers, and while the last are read the
# first decode: they must come from the prefix cache.
_FROM_CACHE = 1024
_STEP_COST_WORKLOADS = ("random-64",)
# A tokenizer may make fewer tokens of a long prompt than its name says, but hardly fewer than this share.
_SURELY = 0.9


class CampaignPlan(BaseModel):
    """What is measured; kept beside the results, and compared when a run is resumed.

    Attributes:
        stack, stack_digest: what is served.
        variants: in the order in which they are measured; `baseline` is always among them.
        workloads, concurrency: the grid.
        repeats: how often the whole grid is measured.
        requests: measured requests a cell at concurrency 1.
        max_tokens: output limit of each request.
        co_resident: engines run side by side and cells alternate; else one engine at a time.
        seed: of all prompt orders.
        precision: repeats of a place end once its intervals are this tight (half width / middle); None: never.
        rounds: measured requests of each user, at least.
        step_cost: every batch is a wave of its own, all answers run to the limit, and tokens are sampled (the greedy
            answers of dummy weights run in circles, and so would their experts).
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    stack: str
    stack_digest: str
    variants: tuple[str, ...]
    workloads: tuple[str, ...]
    concurrency: tuple[int, ...] = Field(min_length=1)
    repeats: int = Field(ge=1)
    requests: int = Field(ge=1)
    max_tokens: int = Field(ge=2)
    co_resident: bool
    seed: int = 0
    precision: float | None = Field(None, gt=0, lt=1)
    rounds: int = Field(_ROUNDS, ge=1)
    step_cost: bool = False

    @classmethod
    def for_stack(  # noqa: PLR0913 - one keyword a field
        cls,
        stack: Stack,
        *,
        variants: Sequence[str] = (),
        workloads: Sequence[str] = (),
        concurrency: Sequence[int] = (),
        repeats: int | None = None,
        requests: int | None = None,
        max_tokens: int | None = None,
        seed: int = 0,
        precision: float | None = None,
        step_cost: bool = False,
    ) -> Self:
        """The stack's own campaign, with whatever is given replacing its part.

        Raises:
            StackError: the stack has no such variant.
            CampaignError: there is no such workload, or its prompts do not fit into the stack's `max_model_len`.
        """
        default = stack.campaign
        chosen = list(dict.fromkeys(variants or default.variants or stack.variants))
        for name in chosen:
            stack.variant(name)
        for name in workloads:
            _check_workload(name)
        taken = tuple(workloads) or (_STEP_COST_WORKLOADS if step_cost else default.workloads)
        for name in taken:
            _check_room(name, max_tokens or default.max_tokens, stack)
        return cls(
            stack=stack.name,
            stack_digest=stack.digest(),
            variants=("baseline", *(v for v in chosen if v != "baseline")),
            workloads=taken,
            concurrency=tuple(sorted(set(concurrency or default.concurrency))),
            repeats=repeats or default.repeats,
            requests=requests or default.requests,
            max_tokens=max_tokens or default.max_tokens,
            co_resident=default.co_resident,
            seed=seed,
            precision=precision,
            rounds=_WAVES if step_cost else _ROUNDS,
            step_cost=step_cost,
        )

    def requests_at(self, concurrency: int) -> int:
        """Measured requests of a cell: all rounds of each user, or `requests` if that is more; whole waves."""
        least = max(self.requests, self.rounds * concurrency)
        return -(-least // concurrency) * concurrency if self.step_cost else least

    def prompt_seed(self, key: CellKey) -> int:
        """Prompt order of a cell: the same for all variants, another for each repeat and concurrency."""
        return self.seed * 1_000_003 + key.repeat * 1009 + key.concurrency

    def distinct_prompts(self, key: CellKey) -> int | None:
        """Prompts of a cell whose waves are to find them in the prefix cache, one a user; else None, for all."""
        long = (prompt_length(key.workload) or 0) >= _FROM_CACHE
        return key.concurrency if self.step_cost and long else None

    def cells(self) -> list[CellKey]:
        """All cells in the order of measuring.

        Side by side, variants alternate within each point, and each point of a repeat begins with another
        one, so that drift of the machine hits all alike. One engine at a time, each variant is started once
        and measures its whole grid; baseline's first workload comes once more at the end, to show drift. Not so
        for step cost, whose engines take minutes to load and do nothing but steps.
        """
        if self.co_resident:
            return [
                CellKey(variant=variant, workload=workload, concurrency=concurrency, repeat=repeat)
                for repeat in range(self.repeats)
                for workload in self.workloads
                for concurrency in self.concurrency
                for variant in _rotated(self.variants, repeat + self.concurrency.index(concurrency))
            ]
        grid = [
            CellKey(variant=variant, workload=workload, concurrency=concurrency, repeat=repeat)
            for variant in self.variants
            for repeat in range(self.repeats)
            for workload in self.workloads
            for concurrency in self.concurrency
        ]
        drift = [
            CellKey(variant="baseline", workload=self.workloads[0], concurrency=c, repeat=self.repeats)
            for c in self.concurrency
        ]
        return grid + (drift if len(self.variants) > 1 and not self.step_cost else [])


def _rotated(names: tuple[str, ...], by: int) -> tuple[str, ...]:
    by %= len(names)
    return names[by:] + names[:by]


def _check_workload(name: str) -> None:
    if not is_workload(name):
        known = workload_names()
        raise CampaignError(
            f"there is no workload {name!r}{did_you_mean(name, known)}", next_step=f"one of: {', '.join(known)}"
        )


def _check_room(name: str, max_tokens: int, stack: Stack) -> None:
    """Refuse prompts that an engine would answer with an error, after minutes of loading weights."""
    tokens, limit = prompt_length(name) or 0, stack.target.max_model_len
    # Random letters are as many tokens only where a token is a byte, as in a cut shape; elsewhere they are fewer.
    exact = not name.startswith("random-") or stack.engine.flags.get("load-format") == "dummy"
    if exact and _SURELY * tokens + max_tokens > limit:
        raise CampaignError(
            f"workload {name} does not fit into stack {stack.name}",
            evidence=f"some {tokens:,} tokens of prompt and {max_tokens:,} of answer, max_model_len {limit:,}",
            next_step="take a shorter workload, or raise target.max_model_len (`outrider shape --max-model-len`)",
        )
