"""Everything decided about a stack: the surface, the gates, and the schedules to emit."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from outrider.decide.dynamic_cost import DynamicCost, dynamic_cost
from outrider.decide.errors import DecideError
from outrider.decide.gates import Gate, gate_tree
from outrider.decide.options import Option, Paired, options_of
from outrider.decide.places import Band, PlaceChoice, bands_of, capacity, choose_place, commonest_band
from outrider.decide.schedule import Schedule, build_schedule
from outrider.predict.room import fitting
from outrider.predict.surface import Wanted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from outrider.campaign.stats import Interval
    from outrider.decide.slo import Slo
    from outrider.decide.training_cost import TrainingCost
    from outrider.predict.observations import Observation
    from outrider.predict.session import Session


@dataclass(frozen=True, slots=True)
class Emitted:
    """A schedule for one band.

    Attributes:
        name: of the new variant: `dynamic` for the default band, `dynamic-<band>` for others.
        source: variant whose drafter it uses.
        band: contexts that it is for.
        schedule: the bands and what they give.
    """

    name: str
    source: str
    band: Band
    schedule: Schedule


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked.

    Attributes:
        slo: limits and objective.
        contexts: one representative a band.
        concurrency: loads of the surface.
        workload: whose acceptance the schedules follow; empty for the commonest of the cells.
        ks: candidates for every speculating variant; empty for 1 to the variant's own.
        context_ranks: decode context parallelism; 0 for the stack's.
    """

    slo: Slo
    contexts: tuple[float, ...]
    concurrency: tuple[int, ...]
    workload: str = ""
    ks: tuple[int, ...] = ()
    context_ranks: int = 0


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer.

    Attributes:
        slo: what it keeps to.
        workload: whose acceptance was used; empty if cells name none.
        context_ranks: decode context parallelism.
        bands: context bands.
        default_band: the commonest one, for which `dynamic` is.
        choices: one a band and load that fits the KV cache.
        capacity: load of most throughput under the SLO, by band.
        gates: the tree.
        emitted: schedules.
        cost: of the dynamic path.
        left_out: places that do not fit the KV cache.
    """

    slo: Slo
    workload: str
    context_ranks: int
    bands: tuple[Band, ...]
    default_band: Band
    choices: tuple[PlaceChoice, ...]
    capacity: Mapping[Band, PlaceChoice]
    gates: tuple[Gate, ...]
    emitted: tuple[Emitted, ...]
    cost: DynamicCost
    left_out: int


def decide(
    session: Session,
    cells: Sequence[Observation],
    question: Question,
    training: TrainingCost | None,
    paired: Paired | None = None,
) -> Decision:
    """Decide.

    Args:
        session: model fitted to the cells.
        cells: all of them, those under a schedule included.
        question: what is asked.
        training: what a drafter would cost.
        paired: speedups over paired prompts, where requests were kept.

    Raises:
        DecideError: no place fits, or the workload was not measured.
    """
    stack = session.stack
    bands = bands_of(question.contexts)
    workload = _workload(cells, question.workload)
    choices_of = _candidates(session, question)
    ranks = question.context_ranks or session.fit.machine.context_ranks
    wanted = [
        Wanted(name, k, batch, band.context, ranks, workload)
        for band in bands
        for batch in question.concurrency
        for name, k in [("baseline", 0), *choices_of]
    ]
    inside, outside = fitting(stack, wanted)
    options = options_of(session, inside, cells, paired)
    choices = _surface(bands, question, options)
    cost = dynamic_cost(cells)
    default = commonest_band(bands, [c for c in cells if not workload or c.workload == workload])
    emitted = [
        found
        for band in bands
        if (found := _emit(session, cells, band, default, choices_of, cost, ranks, workload, paired)) is not None
    ]
    return Decision(
        slo=question.slo,
        workload=workload,
        context_ranks=ranks,
        bands=tuple(bands),
        default_band=default,
        choices=tuple(choices),
        capacity=capacity(choices),
        gates=tuple(gate_tree(stack, choices, training)),
        emitted=tuple(emitted),
        cost=cost,
        left_out=len(outside),
    )


def contexts_of(cells: Sequence[Observation], limit: int) -> tuple[float, ...]:
    """Representative contexts: medians of the cells' contexts within half an octave of each other.

    Without cells: 1k, 16k and 64k tokens, as far as the target takes them.
    """
    if not cells:
        return tuple(float(length) for length in (1024, 16384, 65536) if length <= limit) or (limit / 2,)
    groups: list[list[float]] = []
    for context in sorted(cell.context for cell in cells):
        if groups and math.log2((context + 1024) / (groups[-1][0] + 1024)) <= 0.5:
            groups[-1].append(context)
        else:
            groups.append([context])
    return tuple(group[len(group) // 2] for group in groups)


def _workload(cells: Sequence[Observation], asked: str) -> str:
    counts = Counter(cell.workload for cell in cells)
    if asked and asked not in counts:
        raise DecideError(
            f"no cell was measured under workload {asked!r}",
            next_step=f"one of: {', '.join(sorted(name for name in counts if name)) or 'none; leave --workload out'}",
        )
    return asked or (counts.most_common(1)[0][0] if counts else "")


def _candidates(session: Session, question: Question) -> list[tuple[str, int]]:
    found = []
    for name in session.speculating():
        spec = session.stack.variants[name].speculation
        if spec is None:
            continue
        # Look-up proposals cost the same for every k, and a block drafter proposes its block.
        fixed = spec.drafter is None or spec.method in {"dflash", "dspark"}
        for k in (spec.k,) if fixed else question.ks or tuple(range(1, spec.k + 1)):
            session.check_k(name, k)
            found.append((name, k))
    return found


def _surface(bands: Sequence[Band], question: Question, options: Sequence[Option]) -> list[PlaceChoice]:
    found = []
    for band in bands:
        for batch in question.concurrency:
            own = [o for o in options if o.context == band.context and o.batch == batch]
            if any(not o.k for o in own):
                found.append(choose_place(band, batch, own, question.slo))
    if not found:
        raise DecideError(
            "no place that was asked for fits into the KV cache",
            evidence=f"contexts {', '.join(f'{b.context:.0f}' for b in bands)}, users {question.concurrency}",
            next_step="ask for shorter contexts or fewer users",
        )
    return found


def _emit(
    session: Session,
    cells: Sequence[Observation],
    band: Band,
    default: Band,
    candidates: Sequence[tuple[str, int]],
    cost: DynamicCost,
    ranks: int,
    workload: str,
    paired: Paired | None,
) -> Emitted | None:
    """The schedule of the drafter that gains most in a band; None where plain decoding is as fast."""
    drafters = [n for n in dict.fromkeys(n for n, _ in candidates) if session.stack.variants[n].speculation]
    most = session.stack.memory.max_num_seqs or max(session.stack.campaign.concurrency)
    best: tuple[float, Emitted] | None = None
    for name in drafters:
        ks = [k for n, k in candidates if n == name]
        wanted = [Wanted(name, k, b, band.context, ranks, workload) for b in _batches(most) for k in ks]
        plain = [Wanted("baseline", 0, b, band.context, ranks, workload) for b in _batches(most)]
        inside, _ = fitting(session.stack, wanted)
        options = options_of(session, [*plain, *inside], cells, paired)
        speedups: dict[int, dict[int, Interval]] = {}
        for option in options:
            if option.speedup is not None:
                speedups.setdefault(option.batch, {})[option.k] = option.speedup
        whole = {b: own for b, own in speedups.items() if len(own) == len(ks)}
        if not whole:
            continue
        schedule = build_schedule(whole, cost, max_batch=most)
        label = "dynamic" if band == default else f"dynamic-{band.name}".strip("-")
        # K = 0 inside a schedule costs more than no speculation: where that is the best, no schedule is.
        if schedule.gain > 1 and (best is None or schedule.gain > best[0]):
            best = schedule.gain, Emitted(label, name, band, schedule)
    return best[1] if best else None


def _batches(most: int) -> list[int]:
    """Batch sizes at which a schedule may change: powers of two and their midpoints."""
    found = {1, most}
    size = 1
    while size <= most:
        found |= {size, size + size // 2}
        size *= 2
    return sorted(b for b in found if b <= most)
