"""Parity: did speculation leave the answers' quality alone?

Speculative decoding with the standard rejection rule keeps the target's output distribution, and greedy
output with it: in exact arithmetic. In BF16 it does not keep the bytes. Verifying several tokens at once runs
other kernel shapes than decoding one, sums are rounded in another order, and where two tokens are nearly tied
the argmax flips; from there on two texts differ although neither is worse. The same happens to one variant
under two batch sizes. So byte identity is not expected here, and its absence is no defect. What is measured:

- **Agreement**: greedy answers to the same prompts; length of the common prefix as a share of the longer
  answer, in tokens where both servers return token ids (vLLM: `return_token_ids`), else in characters, and
  labelled so. The first variant is asked twice, in another order, for the agreement that it has *with itself*:
  the noise floor beside which the other figure must be read. An interval of no width (100 % to 100 %) says
  that no prompt differed, not that none ever will.
- **Accuracy**: share of right answers on the tasks of `parity_tasks`, its paired difference with an
  interval, and a verdict against a margin.

`run_parity` needs both variants up. Where they do not fit side by side, `collect_answers` each in turn and
give both to `compare_answers`, which does no I/O.
"""

from __future__ import annotations

import random
from collections import defaultdict
from typing import TYPE_CHECKING

from outrider.campaign.parity_client import Answer, Answers, Ask, Progress, ask_all
from outrider.campaign.parity_result import Accuracy, Agreement, ParityPlan, ParityResult, Unit
from outrider.campaign.parity_tasks import Task, load_tasks
from outrider.campaign.stats import (
    bootstrap_interval,
    equivalence,
    paired_difference,
    paired_share_difference,
)
from outrider.errors import CampaignError
from outrider.load.workloads import Prompt, load_workload
from outrider.load.workloads.prompt import user

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import httpx

__all__ = [
    "Accuracy",
    "Agreement",
    "Answers",
    "ParityPlan",
    "ParityResult",
    "collect_answers",
    "compare_answers",
    "run_parity",
]

AGREEMENT_WORKLOADS = ("chat", "code", "edit", "reasoning")


async def run_parity(
    url_a: str,
    url_b: str,
    model: str,
    plan: ParityPlan | None = None,
    *,
    names: tuple[str, str] = ("a", "b"),
    progress: Progress | None = None,
    transport: httpx.AsyncBaseTransport | None = None,
) -> ParityResult:
    """Ask two served variants and compare their answers.

    The variants are asked one after the other, so that two engines on one machine do not slow each other.

    Args:
        url_a: base URL of the reference, with or without `/v1`.
        url_b: base URL of the variant in question.
        model: served model name, the same at both.
        plan: what to ask; the default takes about 350 short requests in all.
        names: how the result calls the variants.
        progress: called with (answered, total) of the variant at hand.
        transport: other than the network, for tests.

    Raises:
        LoadError: an endpoint is absent, refuses the request, or answers nothing at all.
        CampaignError: no prompt or task was answered by both.
    """
    chosen = plan or ParityPlan()
    sides = []
    for url, again in ((url_a, chosen.noise_floor), (url_b, False)):
        sides.append(await collect_answers(url, model, chosen, again=again, progress=progress, transport=transport))
    return compare_answers(sides[0], sides[1], model, chosen, names=names)


async def collect_answers(
    url: str,
    model: str,
    plan: ParityPlan,
    *,
    again: bool = False,
    progress: Progress | None = None,
    transport: httpx.AsyncBaseTransport | None = None,
) -> Answers:
    """Ask one variant everything; `again` asks the agreement prompts a second time, for the noise floor."""
    asks = [Ask("prompt", p.id, p.messages, plan.max_tokens) for p in agreement_prompts(plan)]
    repeated = [ask.again() for ask in asks] if again else []
    random.Random(plan.seed + 1).shuffle(repeated)  # noqa: S311 - another order means other batches
    asks += [Ask("task", task.id, (user(task.ask),), plan.task_max_tokens) for task in load_tasks()]
    return await ask_all(
        url,
        model,
        asks + repeated,
        concurrency=plan.concurrency,
        extra_body=plan.extra_body,
        progress=progress,
        transport=transport,
    )


def agreement_prompts(plan: ParityPlan) -> list[Prompt]:
    """The prompts whose greedy answers are compared."""
    return [
        prompt
        for name in AGREEMENT_WORKLOADS
        for prompt in load_workload(name, seed=plan.seed, count=plan.prompts_each).prompts
    ]


def compare_answers(
    a: Answers, b: Answers, model: str, plan: ParityPlan, *, names: tuple[str, str] = ("a", "b")
) -> ParityResult:
    """Pure part of `run_parity`: figures and verdict from two variants' answers.

    Raises:
        CampaignError: no prompt or no task was answered by both.
    """
    unit: Unit = "tokens" if a.has_token_ids and b.has_token_ids else "characters"
    shares = _shares(a.of("prompt"), b.of("prompt"), unit)
    agreement = _agreement(a.of("prompt"), b.of("prompt"), shares, unit, plan.seed)
    floor = loss = None
    if a.of("prompt-again"):
        floor_shares = _shares(a.of("prompt"), a.of("prompt-again"), unit)
        floor = _agreement(a.of("prompt"), a.of("prompt-again"), floor_shares, unit, plan.seed)
        loss = paired_difference(shares, floor_shares, seed=plan.seed)
    accuracy = _accuracy(a.of("task"), b.of("task"))
    return ParityResult(
        schema=1,
        a=names[0],
        b=names[1],
        model=model,
        plan=plan,
        agreement=agreement,
        noise_floor=floor,
        agreement_loss=loss,
        accuracy=accuracy,
        verdict=equivalence(accuracy.difference, plan.margin),
        failures=[f"{name}: {failure}" for name, side in zip(names, (a, b), strict=True) for failure in side.failures],
    )


def common_prefix(one: Sequence[object], two: Sequence[object]) -> int:
    """Length of the longest common prefix."""
    length = 0
    for left, right in zip(one, two, strict=False):
        if left != right:
            break
        length += 1
    return length


def _symbols(answer: Answer, unit: Unit) -> Sequence[object]:
    return answer.token_ids or () if unit == "tokens" else answer.full_text


def _shares(a: Mapping[str, Answer], b: Mapping[str, Answer], unit: Unit) -> dict[str, float]:
    """Common prefix / longer answer by prompt; 1 if both are empty."""
    shares = {}
    for key in a.keys() & b.keys():
        one, two = _symbols(a[key], unit), _symbols(b[key], unit)
        longer = max(len(one), len(two))
        shares[key] = common_prefix(one, two) / longer if longer else 1.0
    if not shares:
        raise CampaignError(
            "no prompt was answered by both runs",
            evidence=f"{len(a)} and {len(b)} answers",
            next_step="look at the failures of each variant",
        )
    return dict(sorted(shares.items()))


def _agreement(
    a: Mapping[str, Answer], b: Mapping[str, Answer], shares: Mapping[str, float], unit: Unit, seed: int
) -> Agreement:
    prefixes = [common_prefix(_symbols(a[key], unit), _symbols(b[key], unit)) for key in shares]
    by_category: defaultdict[str, list[float]] = defaultdict(list)
    for key, share in shares.items():
        by_category[key.split("/")[0]].append(share)
    return Agreement(
        unit=unit,
        share=bootstrap_interval(list(shares.values()), seed=seed),
        identical=sum(share == 1.0 for share in shares.values()) / len(shares),
        median_prefix=sorted(prefixes)[len(prefixes) // 2],
        by_category={name: sum(values) / len(values) for name, values in by_category.items()},
        prompts=len(shares),
    )


def _accuracy(a: Mapping[str, Answer], b: Mapping[str, Answer]) -> Accuracy:
    known: dict[str, Task] = {task.id: task for task in load_tasks()}
    solved = [{key: known[key].solved_by(answer.text) for key, answer in side.items()} for side in (a, b)]
    difference = paired_share_difference(solved[0], solved[1])
    tasks = {key: task for key, task in known.items() if key in a and key in b}
    kinds: defaultdict[str, list[str]] = defaultdict(list)
    for key, task in tasks.items():
        kinds[task.kind].append(key)
    return Accuracy(
        a=sum(solved[0].values()) / len(tasks),
        b=sum(solved[1].values()) / len(tasks),
        difference=difference,
        gained=[key for key in tasks if solved[1][key] and not solved[0][key]],
        lost=[key for key in tasks if solved[0][key] and not solved[1][key]],
        by_kind={
            kind: (sum(solved[0][k] for k in keys) / len(keys), sum(solved[1][k] for k in keys) / len(keys))
            for kind, keys in kinds.items()
        },
        tasks=len(tasks),
    )
