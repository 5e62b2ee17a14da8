"""An adaptive campaign: which cells to measure next, and what its part of the grid says about the whole of it."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from outrider.campaign.cell import MEASURED, CellKey
from outrider.campaign.stats import Interval
from outrider.decide.belief import Belief, Seen
from outrider.decide.errors import DecideError
from outrider.decide.information import Action, best_actions, contests_of
from outrider.predict.observations import drafted_share
from outrider.predict.session import open_session, reported
from outrider.predict.surface import Wanted

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from outrider.campaign.cell import Cell
    from outrider.campaign.plan import CampaignPlan
    from outrider.stack import Stack

# Tokens in the cache where a workload was not measured yet.
_UNKNOWN_CONTEXT = 512.0
# Saving, as log speed summed over places, under which no further cell is worth its time.
LEAST_SAVING = 0.001
_Z = 1.96


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an adaptive campaign comes to at one place.

    Attributes:
        workload, concurrency: the place.
        variant: that the whole grid is expected to choose: the fastest whose gain would stand out of the whole
            grid's noise, else `baseline`.
        sure: whether the interval of what was measured says so already.
        speedups: of every speculating variant, measured or not.
        measured: variants that were measured there.
    """

    workload: str
    concurrency: int
    variant: str
    sure: bool
    speedups: dict[str, Interval]
    measured: tuple[str, ...]

    @property
    def told(self) -> str:
        """One line: the choice, what it rests on, and every speedup."""
        users = f"{self.concurrency} user{'s' if self.concurrency > 1 else ''}"
        gains = ", ".join(
            f"{name} {g.mid:.2f}x ({g.low:.2f}-{g.high:.2f}){'' if name in self.measured else ' not measured here'}"
            for name, g in self.speedups.items()
        )
        return f"{self.workload}, {users}: {self.variant}, {'beyond doubt' if self.sure else 'likely'}; {gains}"


class AdaptiveCampaign:
    """Chooses the cells of a plan one after the other, and decides every place from those that were measured.

    Args:
        stack: what is measured.
        plan: the whole grid.
        share: of its cells that may be measured.

    Raises:
        OutriderError: the stack's target or accelerator is not known, so that nothing can be said beforehand.
    """

    def __init__(self, stack: Stack, plan: CampaignPlan, *, share: float) -> None:
        self._stack = stack
        self._plan = plan
        self._budget = max(2, math.floor(share * len(plan.cells())))
        # One engine at a time: each round costs a start of every variant, so rounds are larger.
        self._rounds = 1 if plan.co_resident else max(2, self._budget // 8)
        self._keys = plan.cells()
        self._session = open_session(stack, draws=0)

    def choose(self, cells: Sequence[Cell]) -> list[CellKey]:
        """Cells to measure now, from those so far; empty when the budget is spent or nothing is worth a cell."""
        tried = {cell.key for cell in cells}
        left = self._budget - len(tried)
        if left < 1:
            return []
        belief, index = self._belief(cells)
        actions = self._actions(index, cells)
        # No place is repeated while another is worth a first look: what the model misses there is not the noise that a
        # repeat would average.
        first = [action for action in actions if all(self._first(block) for _, block in action)]
        blank = {(key.workload, key.concurrency) for key in self._keys} - {(c.workload, c.concurrency) for c in cells}
        chosen: list[Action] = []
        for offered in (first, actions) if blank else (actions,):
            chosen = chosen or best_actions(belief, offered, most_cells=left, rounds=self._rounds, least=LEAST_SAVING)
        wanted = {block for action in chosen for block in action}
        return [key for key in self._keys if (index[_site(key)], _block(key)) in wanted and key not in tried]

    def verdicts(self, cells: Sequence[Cell]) -> list[Verdict]:
        """The decision at every place of the grid."""
        belief, _ = self._belief(cells)
        found = []
        for contest in contests_of(belief):
            mean, cov = belief.gains([contest.plain] * len(contest.rivals), contest.rivals)
            site = belief.sites[contest.plain]
            speedups = {
                belief.sites[rival].variant: _interval(float(mean[i]), math.sqrt(max(float(cov[i, i]), 0.0)))
                for i, rival in enumerate(contest.rivals)
            }
            least = math.exp(_Z * belief.grid_sd(self._plan.repeats))
            likely = [name for name, gain in speedups.items() if gain.mid > least]
            best = max(likely, key=lambda name: speedups[name].mid, default="baseline")
            sure = speedups[best].low > 1 if likely else all(gain.high < 1 for gain in speedups.values())
            here = {
                c.variant for c in cells if (c.workload, c.concurrency) == (site.workload, site.batch) and _usable(c)
            }
            found.append(
                Verdict(
                    site.workload, site.batch, best, sure, speedups, tuple(v for v in self._plan.variants if v in here)
                )
            )
        return found

    def _belief(self, cells: Sequence[Cell]) -> tuple[Belief, dict[tuple[str, str, int], int]]:
        contexts: defaultdict[str, list[float]] = defaultdict(list)
        for cell in cells:
            if _usable(cell) and cell.load:
                answer = cell.load.tokens / max(cell.load.requests, 1)
                contexts[cell.workload].append((cell.context_tokens or 0) + answer / 2)
        shares = _drafted(cells)
        ranks = self._session.fit.machine.context_ranks
        sites: list[Wanted] = []
        index: dict[tuple[str, str, int], int] = {}
        for workload in self._plan.workloads:
            own = contexts[workload]
            context = math.fsum(own) / len(own) if own else _UNKNOWN_CONTEXT
            for load in self._plan.concurrency:
                for name in self._plan.variants:
                    spec = self._stack.variants[name].speculation
                    index[name, workload, load] = len(sites)
                    sites.append(Wanted(name, spec.k if spec else 0, load, context, ranks, workload))
        prior = Belief.prior(
            self._session.fit.machine,
            sites,
            self._session.draft_bytes,
            lambda site: reported(self._stack, site.variant),
            drafted=lambda site: shares.get((site.variant, site.workload)),
        )
        seen = [
            Seen(index[_site(c.key)], _block(c.key), c.load.tpot_s.mean, c.tokens_per_step if c.k else None)
            for c in cells
            if _usable(c) and c.load and c.load.tpot_s.mean and _site(c.key) in index
        ]
        return prior.given(seen), index

    @staticmethod
    def _first(block: object) -> bool:
        return isinstance(block, tuple) and block[2] == 0

    def _actions(self, index: dict[tuple[str, str, int], int], cells: Sequence[Cell]) -> list[Action]:
        """Ways to go on, each variant in its first repeat that is missing, alone or with the others.

        A speculative cell without plain decoding under the same circumstances compares with nothing, so the plain
        cell is part of the price unless it is there.
        """
        tried = {cell.key for cell in cells}
        lost = {_block(c.key) for c in cells if c.variant == "baseline" and not _usable(c)}
        blocks: defaultdict[tuple[str, int], dict[int, list[CellKey]]] = defaultdict(dict)
        for key in self._keys:
            if key not in tried and _block(key) not in lost:
                blocks[key.workload, key.concurrency].setdefault(key.repeat, []).append(key)
        found: list[Action] = []
        for repeats in blocks.values():
            first: dict[str, int] = {}
            for repeat in sorted(repeats):
                for key in repeats[repeat]:
                    first.setdefault(key.variant, repeat)
            for repeat, missing in repeats.items():
                plain = [key for key in missing if key.variant == "baseline"]
                rivals = [key for key in missing if key.variant != "baseline" and first[key.variant] == repeat]
                groups = [[key] for key in rivals] + ([rivals] if len(rivals) > 1 else [])
                found += [tuple((index[_site(key)], _block(key)) for key in plain + group) for group in groups]
        return found


def verdicts_json(verdicts: Sequence[Verdict]) -> list[dict[str, Any]]:
    """What `adaptive.json` of a run holds."""
    return [
        {
            "workload": v.workload,
            "concurrency": v.concurrency,
            "variant": v.variant,
            "sure": v.sure,
            "measured": list(v.measured),
            "speedups": {name: {"low": g.low, "mid": g.mid, "high": g.high} for name, g in v.speedups.items()},
        }
        for v in verdicts
    ]


def read_verdicts(file: Path) -> list[Verdict]:
    """Verdicts that an adaptive campaign kept; none if the run was none.

    Raises:
        DecideError: the file is damaged.
    """
    if not file.is_file():
        return []
    try:
        return [
            Verdict(
                row["workload"], row["concurrency"], row["variant"], bool(row["sure"]),
                {name: Interval(g["low"], g["mid"], g["high"], 1) for name, g in row["speedups"].items()},
                tuple(row["measured"]),
            )
            for row in json.loads(file.read_text(encoding="utf-8"))
        ]  # fmt: skip
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DecideError(
            f"{file} holds no verdicts", evidence=f"{type(error).__name__}: {error}", next_step="remove it"
        ) from error


def _drafted(cells: Sequence[Cell]) -> dict[tuple[str, str], float]:
    """Share of steps that drafted, by variant and workload, where it was counted."""
    found: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for cell in cells:
        share = drafted_share(cell.to_json()) if cell.k and _usable(cell) else None
        if share is not None:
            found[cell.variant, cell.workload].append(share)
    return {key: math.fsum(own) / len(own) for key, own in found.items()}


def _site(key: CellKey) -> tuple[str, str, int]:
    return key.variant, key.workload, key.concurrency


def _block(key: CellKey) -> tuple[str, int, int]:
    return key.workload, key.concurrency, key.repeat


def _usable(cell: Cell) -> bool:
    return cell.status in MEASURED and cell.status != "invalid"


def _interval(mean: float, sd: float) -> Interval:
    return Interval(math.exp(mean - _Z * sd), math.exp(mean), math.exp(mean + _Z * sd), 1)
