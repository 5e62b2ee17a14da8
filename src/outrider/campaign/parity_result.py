"""What `outrider parity` asks and what it finds: the documented JSON."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from outrider.campaign.stats import Interval, Verdict

Unit = Literal["tokens", "characters"]


class ParityPlan(BaseModel):
    """What is asked.

    Attributes:
        prompts_each: prompts from each of chat, code, edit and reasoning for the agreement.
        max_tokens: limit of their answers.
        task_max_tokens: limit of the answers to tasks; a model that thinks aloud needs more.
        concurrency: requests in flight.
        margin: difference of accuracy, as a share, that is taken as none.
        seed: order of the prompts, and of the bootstrap.
        noise_floor: whether the first variant is asked twice.
        extra_body: further fields of every request, e.g. `chat_template_kwargs`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    prompts_each: int = 12
    max_tokens: int = 128
    task_max_tokens: int = 48
    concurrency: int = 4
    margin: float = 0.05
    seed: int = 0
    noise_floor: bool = True
    extra_body: dict[str, object] = {}


class Agreement(BaseModel):
    """How far greedy answers of two runs go together.

    Attributes:
        unit: what the prefix is counted in.
        share: mean over prompts of common prefix / longer answer, 0-1, with its interval.
        identical: share of prompts with the same answer to the end.
        median_prefix: median length of the common prefix, in `unit`.
        by_category: mean share for each workload.
        prompts: compared.
    """

    model_config = ConfigDict(extra="forbid")
    unit: Unit
    share: Interval
    identical: float
    median_prefix: float
    by_category: dict[str, float]
    prompts: int


class Accuracy(BaseModel):
    """Right answers of both variants on the same tasks.

    Attributes:
        a: share of tasks that A solved, 0-1.
        b: share that B solved.
        difference: b - a with its interval.
        gained: ids of tasks that only B solved.
        lost: ids of tasks that only A solved.
        by_kind: shares of A and B for each kind of task.
        tasks: compared.
    """

    model_config = ConfigDict(extra="forbid")
    a: float
    b: float
    difference: Interval
    gained: list[str]
    lost: list[str]
    by_kind: dict[str, tuple[float, float]]
    tasks: int


class ParityResult(BaseModel):
    """The stable JSON of `outrider parity --json` (`schema` 1). Intervals: low, mid, high, n, dropped, confidence.

    Attributes:
        schema_: 1; `schema` in the JSON. Fields are only ever added within a schema number.
        a: name of the variant that is the reference.
        b: name of the variant in question.
        model: served model.
        plan: what was asked.
        agreement: B against A.
        noise_floor: A against A asked again; None if it was not asked for.
        agreement_loss: mean share of `noise_floor` minus that of `agreement`, paired by prompt: what B adds to
            the noise that A has with itself; None without a noise floor.
        accuracy: on the task set.
        verdict: `equivalent`, `lower`, `higher` (B's accuracy against A's, by the margin) or `unclear`.
        failures: requests without an answer, as `variant: id: cause`; they enter no figure.
    """

    model_config = ConfigDict(extra="forbid", serialize_by_alias=True)
    schema_: Literal[1] = Field(1, alias="schema")
    a: str
    b: str
    model: str
    plan: ParityPlan
    agreement: Agreement
    noise_floor: Agreement | None
    agreement_loss: Interval | None
    accuracy: Accuracy
    verdict: Verdict
    failures: list[str]

    @property
    def summary(self) -> str:
        """Two sentences for a terminal."""
        floor = f" ({self.a} with itself: {self.noise_floor.share.mid:.0%})" if self.noise_floor else ""
        change = self.accuracy.difference
        return (
            f"Greedy answers agree over {self.agreement.share.mid:.0%} of their {self.agreement.unit}{floor}. "
            f"Accuracy {self.accuracy.a:.1%} ({self.a}) and {self.accuracy.b:.1%} ({self.b}), difference "
            f"{change.low:+.1%} to {change.high:+.1%}: {self.verdict} at a margin of {self.plan.margin:.0%}."
        )
