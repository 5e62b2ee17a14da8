"""From rows of phases to the three promises of an `auto` variant. Pure: rows in, figures out.

Variants are compared phase by phase on the prompts that all of them answered, each prompt counting once, so that a
faster one, which gets further through the prompts, is not held against other text. Speed is users / mean TPOT: output
tokens a second of all users while they decode.

The whole run holds, of each phase, the tokens that baseline yields in one and the same time. (With equally many
tokens of each, the phase of one user would be nearly all of it; in equal times, that of most users.)
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

BASELINE = "baseline"
OF_BEST, OVER_SINGLE, OF_BASELINE = 0.95, 1.03, 0.98
_DRAWS = 1000
# The batch that requests met; below it, something else than the engine held them up.
_FULL = 0.9
_PROMPTS = 8

Row = dict[str, Any]
Times = dict[str, dict[str, list[float]]]
"""Of one phase: variant -> prompt -> mean TPOT in seconds by round."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A ratio with its 95 % interval over prompts."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} ({self.low:.3f}-{self.high:.3f})"


@dataclass(frozen=True, slots=True)
class Verdict:
    """One promise.

    Attributes:
        text: what is promised.
        reached: whether it holds.
        figure: the ratio that decides.
        where: the phase that decides; empty for the whole run.
    """

    text: str
    reached: bool
    figure: Estimate
    where: str = ""

    def __str__(self) -> str:
        return f"{'PASS' if self.reached else 'FAIL'}  {self.text}: {self.figure}{self.where and f' in {self.where}'}"


def common_times(rows: Sequence[Row], variants: Sequence[str]) -> dict[str, Times]:
    """By phase, times on prompts that every variant answered in every round.

    Raises:
        ValueError: a phase has no such prompt, so that nothing can be compared.
    """
    found: dict[str, Times] = {}
    for phase in dict.fromkeys(row["phase"] for row in rows):
        own = [row for row in rows if row["phase"] == phase]
        prompts = set.intersection(*(set(row["tpot_by_prompt"]) for row in own))
        if not prompts:
            raise ValueError(f"{phase}: no prompt was answered by every variant: give it more seconds")
        found[phase] = {
            variant: {p: [row["tpot_by_prompt"][p][1] for row in own if row["arm"] == variant] for p in sorted(prompts)}
            for variant in variants
        }
    return found


def speeds(times: Times, users: int, prompts: Sequence[str]) -> dict[str, float]:
    """Tokens per second of all users by variant, over some prompts (a prompt may stand there several times)."""
    return {
        variant: users * len(prompts) / math.fsum(_mean(by_prompt[p]) for p in prompts)
        for variant, by_prompt in times.items()
    }


def whole_run(by_phase: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Speed over the whole run against baseline's, by variant."""
    variants = next(iter(by_phase.values()))
    return {
        variant: len(by_phase) / math.fsum(own[BASELINE] / own[variant] for own in by_phase.values())
        for variant in variants
    }


def oracle(by_phase: Mapping[str, Mapping[str, float]], static: Sequence[str]) -> float:
    """The whole run's speed against baseline's if the best static variant served each phase: what can be had."""
    return len(by_phase) / math.fsum(own[BASELINE] / max(own[v] for v in static) for own in by_phase.values())


class Outcome:
    """Figures of a whole run."""

    def __init__(self, rows: Sequence[Row], static: Sequence[str], auto: str, *, draws: int = _DRAWS) -> None:
        """Work everything out.

        Args:
            rows: of every variant, phase and round.
            static: variants with one k, baseline among them.
            auto: the variant that chooses.
            draws: of the bootstrap over prompts.

        Raises:
            ValueError: nothing can be compared.
        """
        self.static, self.auto = list(static), auto
        self.users = {row["phase"]: row["users"] for row in rows}
        self.times = common_times(rows, [*static, auto])
        self.speed = {p: speeds(t, self.users[p], sorted(t[auto])) for p, t in self.times.items()}
        self.whole = whole_run(self.speed)
        self.best_single = max(self.static, key=lambda v: self.whole[v])
        draw = random.Random(0)
        self._drawn = [
            {
                phase: speeds(t, self.users[phase], draw.choices(sorted(t[auto]), k=len(t[auto])))
                for phase, t in self.times.items()
            }
            for _ in range(draws)
        ]

    def best_static(self, phase: str) -> str:
        """The fastest static variant in a phase."""
        return max(self.static, key=lambda v: self.speed[phase][v])

    def ratio(self, phase: str, other: str) -> Estimate:
        """The choosing variant's speed over another's in a phase."""
        drawn = [d[phase][self.auto] / d[phase][other] for d in self._drawn]
        return _estimate(self.speed[phase][self.auto] / self.speed[phase][other], drawn)

    def over_single(self) -> Estimate:
        """The choosing variant's whole run over that of the best single static variant."""
        drawn = [(w := whole_run(d))[self.auto] / w[self.best_single] for d in self._drawn]
        return _estimate(self.whole[self.auto] / self.whole[self.best_single], drawn)

    def verdicts(self) -> list[Verdict]:
        """The three promises, each decided by its worst phase."""
        of_best = {phase: self.ratio(phase, self.best_static(phase)) for phase in self.speed}
        of_plain = {phase: self.ratio(phase, BASELINE) for phase in self.speed}
        worst, lowest = (min(d, key=lambda p: d[p].value) for d in (of_best, of_plain))
        return [
            _verdict("each phase within 5 % of its best static k", of_best[worst], OF_BEST, worst),
            _verdict(f"the whole run 3 % faster than {self.best_single} alone", self.over_single(), OVER_SINGLE),
            _verdict("never below baseline by more than 2 %", of_plain[lowest], OF_BASELINE, lowest),
        ]

    def table(self) -> list[str]:
        """Speeds as Markdown."""
        variants = [*self.static, self.auto]
        lines = [
            "| phase | prompts | " + " | ".join(variants) + f" | {self.auto} / best static | / baseline |",
            "|---" * (len(variants) + 4) + "|",
        ]
        for phase, speed in self.speed.items():
            values = " | ".join(f"{speed[v]:.0f}" for v in variants)
            ratios = f"{self.ratio(phase, self.best_static(phase))} | {self.ratio(phase, BASELINE)}"
            lines.append(f"| {phase} | {len(self.times[phase][self.auto])} | {values} | {ratios} |")
        values = " | ".join(f"{self.whole[v]:.3f}x" for v in variants)
        lines.append(
            f"| whole run, against baseline | | {values} | {self.over_single()} | {self.whole[self.auto]:.3f} |"
        )
        return lines

    def thin(self) -> list[str]:
        """Phases that rest on so few prompts that their interval says little."""
        counts = {phase: len(times[self.auto]) for phase, times in self.times.items()}
        return [f"{phase}: {n} prompts in common, give it more seconds" for phase, n in counts.items() if n < _PROMPTS]

    def ceiling(self) -> str:
        """How much could be won over the best single variant at all."""
        could = oracle(self.speed, self.static) / self.whole[self.best_single]
        return (
            f"Each phase's best static k, found without learning, would be {could:.3f} times {self.best_single} alone."
        )


def doubts(rows: Sequence[Row]) -> list[str]:
    """What makes rows hard to believe or to compare, one line each."""
    found = []
    for row in rows:
        where = f"{row['arm']}, {row['phase']}, round {row['round']}"
        if row["status"] != "ok":
            found.append(f"{where}: {row['status']} ({', '.join(row['findings'])})")
        if row["mean_running"] is not None and row["mean_running"] < _FULL * row["users"]:
            found.append(f"{where}: {row['mean_running']:.1f} of {row['users']} users in the batch on average")
        if row.get("utility", {}).get("fault"):
            found.append(f"{where}: the controller has given up; the engine's log says why")
        elif "utility" in row and not row["utility"].get("exported"):
            found.append(f"{where}: the controller's figures cannot be read")
    for fact in ("model_runner", "version"):
        seen = {row["arm"]: row["engine"].get(fact) for row in rows}
        if len(set(seen.values())) > 1:
            found.append(f"variants differ in {fact}: " + ", ".join(f"{arm} {value}" for arm, value in seen.items()))
    return found


def learning(rows: Sequence[Row]) -> list[str]:
    """What the controller did in each phase, as Markdown; rows in the order in which they were measured."""
    lines = [
        "| round | phase | k at its end (batch: k) | steps that counted | others | changes | tests |",
        "|---" * 7 + "|",
    ]
    before: Row = {}
    for row in rows:
        if "utility" not in row:
            continue
        now, then = row["utility"], before.get("utility", {}) if before.get("round") == row["round"] else {}
        clean, other = (now["steps"].get(k, 0) - then.get("steps", {}).get(k, 0) for k in ("clean", "other"))
        k = ", ".join(f"{batch}: {value}" for batch, value in now["k"].items())
        counts = " | ".join(f"{now[name] - then.get(name, 0):.0f}" for name in ("switches", "tests"))
        lines.append(f"| {row['round']} | {row['phase']} | {k} | {clean:.0f} | {other:.0f} | {counts} |")
        before = row
    return lines


def _verdict(text: str, figure: Estimate, least: float, where: str = "") -> Verdict:
    return Verdict(text, figure.value >= least, figure, where)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _estimate(value: float, drawn: list[float]) -> Estimate:
    drawn.sort()
    return Estimate(value, drawn[round(0.025 * (len(drawn) - 1))], drawn[round(0.975 * (len(drawn) - 1))])
