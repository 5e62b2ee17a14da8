"""The questions of a node's owner, each answered in a sentence with its source: the first screen of a report."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from outrider.predict.experts import distinct_experts
from outrider.predict.surface import Wanted, predict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from outrider.decide.gates import Gate
    from outrider.decide.training_cost import TrainingCost
    from outrider.report.outlook import Outlook, Row

Tone = Literal["good", "bad", "open", "plain"]
_TONES: dict[str, Tone] = {"go": "good", "no-go": "bad", "measure": "open"}


@dataclass(frozen=True, slots=True)
class Answer:
    """One question.

    Attributes:
        question: as the owner asks it.
        answer: what is shown large.
        detail: the figures behind it.
        source: where they come from.
        tone: how the answer reads: pays, does not pay, not known yet, or neither.
    """

    question: str
    answer: str
    detail: str
    source: str
    tone: Tone = "plain"


def answers(outlook: Outlook, gates: Sequence[Gate], cost: TrainingCost | None) -> list[Answer]:
    """All questions, in the order in which an owner asks them.

    Args:
        outlook: decisions, rows and checks; its own `answers` are not read.
        gates: of the decision tree over all rows.
        cost: of training a drafter; None where the target is not in the catalogue.
    """
    by_name = {gate.name: gate for gate in gates}
    return [
        _pays("Does n-gram pay?", by_name["ngram"], outlook),
        _pays("Does a drafter that exists pay?", by_name["existing drafter"], outlook),
        _off(outlook),
        _training(by_name["train"], cost),
        _experts(outlook),
        _schedule(outlook),
        _trust(outlook),
        _next(outlook),
    ]


def _pays(question: str, gate: Gate, outlook: Outlook) -> Answer:
    lookup = gate.name == "ngram"
    draft_bytes = outlook.session.draft_bytes
    own = [
        (row, choice, o)
        for row in outlook.rows
        for choice in row.choices
        for o in choice.options
        if o.k and o.speedup and (draft_bytes(o.variant) == 0) == lookup
    ]
    if not own:
        return Answer(question, "Not known", "No cell of it here: measure it at one load.", "nothing measured", "open")
    wins = [(row, choice, o) for row, choice, o in own if o.speedup and o.speedup.low > 1]
    lost = sum(o.speedup.high < 1 for _, _, o in own if o.speedup)
    row, choice, best = max(wins or own, key=lambda item: item[2].speedup.mid if item[2].speedup else 0.0)
    gain = best.speedup.mid if best.speedup else 1.0
    at = f"{best.variant} {gain:.2f}x at {_users(choice.batch)}, {row.label}"
    head = f"Yes, at {len(wins)} of {len(own)} places" if wins else f"At none of {len(own)} places beyond doubt"
    detail = f"Best: {at}; loses beyond doubt at {lost}."
    return Answer(question, head, detail, _sources([o.source for _, _, o in own]), _TONES[gate.verdict])


def _off(outlook: Outlook) -> Answer:
    """Where plain decoding is to be served: by row, the loads at which baseline is the choice."""
    total = sum(len(row.choices) for row in outlook.rows)
    off = [(row, [c.batch for c in row.choices if not c.best.k]) for row in outlook.rows]
    plain = [(row, loads) for row, loads in off if loads]
    source = _sources([c.best.source for row in outlook.rows for c in row.choices])
    if not plain:
        return Answer("At which load is it off?", "At none measured", f"On at all {total} places.", source, "good")
    count = sum(len(loads) for _, loads in plain)
    said: defaultdict[str, list[str]] = defaultdict(list)
    for row, loads in plain:
        said[_loads(row, loads)].append(row.label)
    ordered = sorted(said.items(), key=lambda item: -len(item[1]))
    detail = "\n".join(
        f"{text}: {', '.join(labels[:2])}{' and more' * (len(labels) > 2)}" for text, labels in ordered[:3]
    )
    more = "\nothers: see the map" if len(ordered) > 3 else ""
    return Answer("At which load is it off?", f"At {count} of {total} places", f"{detail}{more}", source)


def _loads(row: Row, loads: Sequence[int]) -> str:
    known = [choice.batch for choice in row.choices]
    if list(loads) == known:
        return "always"
    if list(loads) == known[len(known) - len(loads) :]:
        return f"from {_users(loads[0])}"
    return f"at {', '.join(map(str, loads))} users"


def _training(gate: Gate, cost: TrainingCost | None) -> Answer:
    head = {"go": "Worth it", "no-go": "Not worth it now", "measure": "Not known yet"}[gate.verdict]
    price = (
        f" {_sentence(cost.sentence)}" if cost else " Its cost is not known: the target is not in train/targets.yaml."
    )
    source = "gates below; cost as in train plan" if cost else "gates below"
    return Answer("What would training one take?", head, f"{_sentence(gate.why)}{price}", source, _TONES[gate.verdict])


def _experts(outlook: Outlook) -> Answer:
    """What verifying more tokens costs in experts, at the first and the last load of the shortest context."""
    question, machine, fit = "What does MoE activation cost?", outlook.session.fit.machine, outlook.session.fit
    speculating = [o for _, o in outlook.options if o.k]
    if not machine.experts:
        return Answer(question, "Nothing: a dense model", "Every token reads the same weights.", "the target's shape")
    if not speculating:
        return Answer(question, "Not known", "No speculative place.", "nothing measured", "open")
    first = min(speculating, key=lambda o: (o.context, o.batch))
    last = max((o for o in speculating if o.context == first.context), key=lambda o: o.batch)
    told = []
    for option in dict.fromkeys((first.batch, last.batch)):
        tokens = np.array([option, option * (first.k + 1)], dtype=float)
        plain, own = distinct_experts(tokens, machine.experts, machine.per_token, fit.factors.overlap, fit.factors.skew)
        wanted = [
            Wanted(v, k, option, first.context, machine.context_ranks)
            for v, k in (("baseline", 0), (first.variant, first.k))
        ]
        parts = predict(fit, wanted, outlook.session.draft_bytes, acceptance=outlook.session.acceptance)
        extra = 1000 * (parts[1].parts_s["experts"] - parts[0].parts_s["experts"])
        share = extra / 1000 / parts[0].step_s.mid
        told.append((option, own / plain, plain, own, extra, share))
    one, many = told[0], told[-1]
    head = f"k={first.k} reads {one[1]:.1f}x the experts at {_users(one[0])}"
    if len(told) > 1:
        head += f", {many[1]:.1f}x at {many[0]}"
    detail = "\n".join(
        f"{_users(batch)}: {plain:.0f} to {own:.0f} of {machine.experts} a layer, +{extra:.1f} ms a step ({share:.0%})"
        for batch, _, plain, own, extra, share in told
    )
    return Answer(question, head, detail, f"fitted to {fit.source}, routing by factors below")


def _schedule(outlook: Outlook) -> Answer:
    question = "Does k have to change with load?"
    emitted = [e for d in outlook.decisions for e in d.emitted]
    worth = [e for e in emitted if e.schedule.worthwhile]
    source = f"dynamic path: {outlook.decisions[0].cost.source}"
    if not worth:
        bands = "its one band" if len(emitted) == 1 else f"all {len(emitted)} bands" if emitted else "every band"
        return Answer(question, "No", f"One k, or none, does as well in {bands}.", source)
    best = max(worth, key=lambda e: e.schedule.gain / e.schedule.static_gain)
    detail = (
        f"Best: {best.band.words}, {best.schedule.gain:.2f}x; one k {best.schedule.static_gain:.2f}x. Probe it first."
    )
    return Answer(question, f"Yes, in {len(worth)} of {len(emitted)} bands", detail, source, "good")


def _trust(outlook: Outlook) -> Answer:
    question = "How far is the model to be trusted?"
    pairs = [(pair, p.speedup) for pair, p in outlook.checked if p.speedup]
    source = f"fitted to {outlook.session.fit.source}"
    if not pairs:
        return Answer(question, "Not known", "Too few pairs of cells to leave some out.", source, "open")
    error = math.fsum(abs(gain.mid / pair.speedup - 1) for pair, gain in pairs) / len(pairs)
    inside = sum(not gain.excludes(pair.speedup) for pair, gain in pairs)
    detail = f"{len(pairs)} speedups, each left out in turn; {inside} inside their 95 % interval."
    return Answer(question, f"{100 * error:.1f} % mean error", detail, source)


def _next(outlook: Outlook) -> Answer:
    question, source = "What to measure next?", "expected loss of deciding without it"
    if not outlook.next_cells:
        return Answer(question, "Nothing on this grid", "No unmeasured place could change a choice by 0.2 %.", source)
    cell = outlook.next_cells[0]
    at = f"{cell.option.variant} k={cell.option.k}, {_users(cell.option.batch)}, {cell.option.context:.0f} tokens"
    return Answer(question, at, f"Deciding without it loses {cell.expected_loss:.1%}.", source, "open")


def _sources(sources: Sequence[str]) -> str:
    counts = {name: sum(s == name for s in sources) for name in ("measured", "fitted", "prior")}
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count)


def _users(count: int) -> str:
    return f"{count} user{'s' if count > 1 else ''}"


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."
