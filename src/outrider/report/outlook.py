"""What a report says beyond its cells: the decision surface, the model's errors, what is emitted, what to do next."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from outrider.decide.decision import Decision, Question, contexts_of, decide
from outrider.decide.gates import gate_tree
from outrider.decide.next_cell import NextCell, worth_measuring
from outrider.decide.slo import Slo
from outrider.decide.training_cost import training_cost
from outrider.predict.session import Session, open_session
from outrider.predict.validate import Pair, cross_validate, pairs_of
from outrider.report.answers import Answer, answers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from outrider.decide.gates import Gate
    from outrider.decide.options import Option, Paired
    from outrider.decide.places import PlaceChoice
    from outrider.predict.observations import Observation
    from outrider.predict.surface import Prediction
    from outrider.stack import Stack

# Enough for a report's intervals; the command line draws more.
_DRAWS, _FOLD_DRAWS = 40, 16


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the decision map: choices under one workload, context band and context parallelism."""

    label: str
    workload: str
    context_ranks: int
    choices: tuple[PlaceChoice, ...]


@dataclass(frozen=True, slots=True)
class Outlook:
    """Everything below the cells.

    Attributes:
        session: the fitted model.
        decisions: one a workload and context parallelism.
        rows: of the decision map.
        checked: each measured pair with what a model says that was fitted without it.
        next_cells: what to measure next.
        gates: of the decision tree, over all rows.
        answers: the owner's questions.
    """

    session: Session
    decisions: tuple[Decision, ...]
    rows: tuple[Row, ...]
    checked: tuple[tuple[Pair, Prediction], ...]
    next_cells: tuple[NextCell, ...]
    gates: tuple[Gate, ...]
    answers: tuple[Answer, ...]

    @property
    def options(self) -> list[tuple[str, Option]]:
        """Every option with its row's label."""
        return [(row.label, option) for row in self.rows for choice in row.choices for option in choice.options]

    def schedules(self) -> dict[str, list[str]]:
        """Emitted schedules as the engine's own JSON, each with the places that it is for and what it gives there."""
        found: defaultdict[str, list[str]] = defaultdict(list)
        for decision, row in zip(self.decisions, _first_rows(self.rows), strict=True):
            for e in decision.emitted:
                bands = [list(band) for band in e.schedule.bands]
                gain = f"{e.schedule.gain:.2f}x, best single k={e.schedule.static_k} {e.schedule.static_gain:.2f}x"
                worth = "" if e.schedule.worthwhile else "; a single k does as well"
                found[json.dumps({"num_speculative_tokens_per_batch_size": bands})].append(
                    f"{_place(row)}{e.name}, {e.band.words}, drafter of {e.source}: {gain}{worth}"
                )
        return dict(found)


def outlook_of(stack: Stack, cells: Sequence[Observation], paired: Paired | None = None) -> Outlook:
    """Fit, decide and check.

    Args:
        stack: what was measured.
        cells: its cells.
        paired: speedups over paired prompts, where requests were kept.

    Raises:
        OutriderError: the stack's target or accelerator is not known, or nothing can be decided.
    """
    session = open_session(stack, cells, draws=_DRAWS)
    cost = training_cost(stack)
    loads = tuple(sorted({cell.batch for cell in cells}))
    decisions: list[Decision] = []
    rows: list[Row] = []
    groups = dict.fromkeys((cell.workload, cell.context_ranks) for cell in cells)
    for workload, ranks in groups:
        own = [c for c in cells if (c.workload, c.context_ranks) == (workload, ranks)]
        # The variants' own k: what nobody measured is proposed as a cell to measure, not as a choice.
        ks = tuple(sorted({c.k for c in own if c.k and not c.dynamic}))
        question = Question(Slo(), contexts_of(own, stack.target.max_model_len), loads, workload, ks, ranks)
        decision = decide(session, cells, question, cost, paired)
        decisions.append(decision)
        several = len({r for _, r in groups}) > 1
        for band in decision.bands:
            choices = tuple(c for c in decision.choices if c.band == band)
            name = " · ".join(filter(None, [workload, f"dcp {ranks}" if several else "", band.words]))
            if choices:
                rows.append(Row(name, workload, ranks, choices))
    checked = (
        cross_validate(cells, lambda kept: open_session(stack, kept, draws=_FOLD_DRAWS))
        if len(pairs_of(cells)) > 3
        else []
    )
    next_cells = tuple(
        replace(cell, why=f"{row.label}: {cell.why}") for row in rows for cell in worth_measuring(row.choices)
    )
    ranked = tuple(sorted(next_cells, key=lambda cell: -cell.expected_loss)[:5])
    gates = gate_tree(stack, [choice for row in rows for choice in row.choices], cost)
    outlook = Outlook(session, tuple(decisions), tuple(rows), tuple(checked), ranked, (), ())
    return replace(outlook, gates=tuple(gates), answers=tuple(answers(outlook, gates, cost)))


def _first_rows(rows: Sequence[Row]) -> list[Row]:
    return list({(row.workload, row.context_ranks): row for row in reversed(rows)}.values())[::-1]


def _place(row: Row) -> str:
    return " · ".join(filter(None, [row.workload, f"dcp {row.context_ranks}" if row.context_ranks > 1 else ""])) + (
        ": " if row.workload or row.context_ranks > 1 else ""
    )
