"""A plan as a document for whoever signs the rental of a bigger machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from outrider.train.plan import Plan, TargetShape, Workload

_COMMANDS = {
    "regenerate": "outrider train run {stack} --until regenerate --samples {samples}",
    "extract": "outrider train run {stack} --until extract",
    "fit": "outrider train run {stack} --until fit --device cuda",
    "evaluate": "outrider train run {stack} --until card",
}


def plan_json(here: Plan, others: Sequence[Plan], work: Workload, sentence: str) -> dict[str, Any]:
    """The plan as data: `stages` of the asked node, `verdict`, and every alternative."""
    return {
        "node": here.node.name,
        "mode": here.mode,
        "fits": here.fits,
        "reason": here.reason,
        "samples": work.samples,
        "seq_len": work.seq_len,
        "tokens": work.tokens,
        "epochs": work.epochs,
        "stages": {
            name: {
                "gpu_hours": cost.gpu_hours,
                "wall_hours": cost.wall_hours,
                "disk_gb": cost.disk_gb,
                "memory_gb": cost.memory_gb,
                "formula": cost.formula,
            }
            for name, cost in here.stages.items()
        },
        "gpu_hours": here.gpu_hours,
        "wall_hours": here.wall_hours,
        "verdict": sentence,
        "alternatives": [
            {"node": p.node.name, "title": p.node.title, "mode": p.mode, "fits": p.fits, "gpu_hours": p.gpu_hours,
             "wall_hours": p.wall_hours, "reason": p.reason, "source": p.node.source}
            for p in others
        ],
    }  # fmt: skip


def plan_table(plan: Plan) -> list[tuple[str, str, str, str, str]]:
    """Rows of stage, wall hours, GPU-hours, disk, formula."""
    return [
        (name, f"{c.wall_hours:.2f}", f"{c.gpu_hours:.2f}", f"{c.disk_gb:.1f} GB", c.formula)
        for name, c in plan.stages.items()
    ]


def plan_markdown(
    stack: str, target: TargetShape, here: Plan, others: Sequence[Plan], work: Workload, sentence: str, floor: float
) -> str:
    """The document: question, verdict, stages with commands, machines, risks, gates."""
    stages = "\n".join(f"| {n} | {w} | {g} | {d} | {f} |" for n, w, g, d, f in plan_table(here))
    commands = "\n".join(
        f"{i}. {name}: `{_COMMANDS[name].format(stack=stack, samples=work.samples)}`"
        for i, name in enumerate(here.stages, 1)
    )
    machines = "\n".join(
        f"| {p.node.title} | {'yes' if p.fits else 'no'} | {p.wall_hours:.1f} | {p.gpu_hours:.0f} | {p.mode} "
        f"| {p.node.source} |"
        for p in (here, *others)
    )
    dry = max(50, work.samples // 1000)
    return f"""# Training an EAGLE-3 head for {target.name}

**Question.** {work.samples} samples of {work.seq_len} tokens ({work.tokens:.3g} tokens), {work.epochs:g} epochs:
here, or on a rented machine?

**Answer.** {sentence[0].upper()}{sentence[1:]}.

{here.reason[0].upper()}{here.reason[1:]}.

## Stages on {here.node.title}

| stage | wall hours | GPU-hours | disk | formula |
|---|---|---|---|---|
{stages}

In all {here.wall_hours:.1f} hours, {here.gpu_hours:.0f} GPU-hours. An estimate: the formulas hold within a factor of
two. Prices are not in here, because they change weekly: multiply GPU-hours by the offer at hand.

## Commands

{commands}

Every stage resumes: the same command goes on where the machine was taken away.

## Machines

| machine | fits | wall hours | GPU-hours | hidden states | figures from |
|---|---|---|---|---|---|
{machines}

## Risks

- Throughput of the answering stage is the largest term; measure it first (`outrider campaign`) and plan again with
  `--answer-tok-s`.
- Tiny sample counts give low acceptance; the figure to beat is the best published head for this target.
- A head is tied to the target's exact weights: a new revision of the target may need a new head.
- Online extraction keeps target and trainer on one machine; a stalled engine stalls training.

## Go or no-go

1. Before renting: a dry run of {dry} samples passes every stage on the machine at hand.
2. After regenerate: at most 20 % of prompts came back empty, and the token count is within 20 % of this plan.
3. After the first epoch: conditional acceptance of step 1 on held-back rows is above 0.5.
4. After check: acceptance length on held-out chat is at least {floor:g}, and served agrees with offline.
5. Before serving: the break-even acceptance length that `outrider decide` gives for the loads you run is below it.
"""
