"""Stage card: the model card of a head, from manifests and the check report."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from outrider.model_store import manifest as file_list
from outrider.train.check import REPORT
from outrider.train.manifest import read_manifest

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from outrider.train.session import Session


def write_card(session: Session, out: Path) -> dict[str, Any]:
    """Write `README.md` here and beside the exported head."""
    report = json.loads((session.stage_dir("check") / REPORT).read_text(encoding="utf-8"))
    stages = ("prompts", "regenerate", "prepare", "extract", "fit")
    manifests = {name: read_manifest(session.stage_dir(name)) for name in stages}
    facts = {
        name: {"counts": m.counts, "seconds": m.seconds, "versions": m.versions} for name, m in manifests.items() if m
    }
    text = render_card(
        name=f"{session.stack.target.served_name}-eagle3",
        target=session.stack.target.model,
        license_=session.stack.target.license,
        stack=session.stack.name,
        recipe=session.recipe.as_dict(),
        report=report,
        facts=facts,
    )
    head = session.stage_dir("export") / "head"
    for place in (out, head):
        (place / "README.md").write_text(text, encoding="utf-8")
    file_list.write(head, json.loads((head / file_list.NAME).read_text(encoding="utf-8"))["from"])
    return {"bytes": len(text.encode())}


def render_card(
    *,
    name: str,
    target: str,
    license_: str,
    stack: str,
    recipe: Mapping[str, Any],
    report: Mapping[str, Any],
    facts: Mapping[str, Mapping[str, Any]],
) -> str:
    """The card as Markdown."""
    k = report["k"]
    served, offline, head = report["served"], report["offline"], report["head"]
    answers = facts["regenerate"]["counts"]["train"]
    rows = [
        f"| {category} | {a['requests']} | {a['length']:.2f} | "
        + " | ".join(f"{p:.2f}" for p in _padded(a["per_position"], k))
        + " |"
        for category, a in sorted(served.items(), key=lambda item: (item[0] == "all", item[0]))
    ]
    positions = " | ".join(f"position {i + 1}" for i in range(k))
    versions = facts["fit"]["versions"]
    mix = ", ".join(f"{c} {n}" for c, n in answers["by_category"].items())
    return f"""# {name}

An EAGLE-3 head of one decoder layer that drafts for {target}.
License: {license_}, as the target's.

## Use

    vllm serve <target> \\
      --speculative-config '{{"method": "eagle3", "model": "<this directory>", "num_speculative_tokens": {k}}}'

The token embedding is the target's own; the head brings {head["parameters"] / 1e6:.1f} M parameters in BF16
({head["bytes"] / 1e6:.1f} MB) and a draft vocabulary of {recipe["draft_vocab_size"] or "the target's"} tokens.

## Acceptance when served

Held-out prompt families (no template of theirs was trained on), greedy, k={k}, at most {report["max_tokens"]} tokens an
answer. Acceptance by position is unconditional (accepted at that position / drafts).

| category | prompts | acceptance length | {positions} |
|---|---|---|{"---|" * k}
{chr(10).join(rows)}

Offline, teacher-forced, on the same prompts and as many tokens: conditional acceptance {_list(offline["conditional"])},
which would be an acceptance length of {offline["expected_length"]:.2f}. The draft vocabulary covers
{offline["coverage"]:.1%} of answer tokens.

## Data

{answers["conversations"]} conversations from the families in `src/outrider/train/corpus/` ({mix}),
answered by the target itself: {answers["answer_tokens"]} answer tokens in {answers["rows"]} rows;
{answers["failed"]} conversations came back empty or were refused and are left out.
Sampling temperatures: {_shares(recipe["temperatures"])}. No text of other people or models is in it.

## Recipe

Auxiliary layers {list(recipe["aux_layers"])} and the last one; {recipe["epochs"]} epochs at most, learning rate
{recipe["lr"]}, {k} unrolled steps, batches of {recipe["seq_len"] * recipe["pack"]} tokens, seed {recipe["seed"]}.
Time: {", ".join(f"{stage} {f['seconds']:.0f} s" for stage, f in facts.items())}.
Versions: {", ".join(f"{p} {v}" for p, v in versions.items()) or "not recorded"}.
Made with `outrider train run {stack}`.

## Limits

- English, short conversations; answers longer than {recipe["max_tokens"]} tokens were not trained on.
- Tokens outside the draft vocabulary are never proposed: other languages and rare symbols are accepted less.
- At temperatures above 0 acceptance is lower than in the table.
- The head changes speed, never the target's output distribution.
"""


def _padded(values: list[float], k: int) -> list[float]:
    return [*values, *([0.0] * (k - len(values)))]


def _list(values: list[float]) -> str:
    return ", ".join(f"{v:.2f}" for v in values)


def _shares(temperatures: Mapping[str, float]) -> str:
    return ", ".join(f"{t} for {share:.0%}" for t, share in temperatures.items())
