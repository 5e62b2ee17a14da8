"""What the controller costs in the engine, with k forced equal: the engine's scheduler against ours holding its prior.

    python benchmarks/utility/overhead.py [--stack smollm2-cpu] [--seconds 10] [--pairs 4] [--starts 4] [--in-turn]

Both engines run the same k by a schedule, so that they differ in the controller only. They stand side by side and are
loaded in turn with the same prompts, there and back (an engine that was idle is slower at first, by 4 % on two cores).
Where only one of them fits, `--in-turn` starts one after the other, which needs a machine that keeps its speed.
Two processes of one and the same engine differ, too (where their memory lies), so both are started anew, in the other
order, and what is held against the promise is the mean of the starts' medians, with its standard error. Beside it
stands what the controller counts itself: its CPU time over its engine's steps, which a noisy machine does not blur. It
may cost less: on a GPU, steps that are scheduled ahead hide it.

Ends with 1 where the promise is broken by more than two standard errors, or by what the controller counts itself.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from traffic import Pace, Phase, run_phase, utility_state

from outrider.campaign.engines import Engines
from outrider.errors import OutriderError, StackError
from outrider.runtime.local import LocalRuntime
from outrider.stack import find_stack
from outrider.vllm_ext.settings import choices

if TYPE_CHECKING:
    from collections.abc import Iterator

    from outrider.stack import Stack

PROMISE = 0.005


def pair_of_variants(stack: Stack, name: str) -> Stack:
    """`plain`: the variant's k by a schedule; `held`: the same under the controller, which never leaves it.

    Raises:
        StackError: the variant is not there, or does not choose k.
    """
    auto = stack.variant(name)
    spec, most = auto.speculation, stack.memory.max_num_seqs or 1
    if spec is None or not spec.auto:
        raise StackError(f"variant {name} of stack {stack.name} has no `auto: true`", next_step="name one that has")
    scheduled = spec.model_copy(update={"auto": False, "schedule": ((1, most, spec.k),)})
    held = json.dumps({"prior": [[1, most, spec.k]], "ks": choices(spec.k), "hold": True})
    variants = {
        "baseline": stack.variant("baseline"),
        "plain": auto.model_copy(update={"speculation": scheduled}),
        "held": auto.model_copy(update={"env": {**auto.env, "OUTRIDER_UTILITY": held}}),
    }
    return stack.model_copy(update={"variants": variants})


def slower(plain: dict[str, tuple[int, float]], held: dict[str, tuple[int, float]]) -> float:
    """By which share `held` takes longer a token, on the prompts that both answered."""
    common = plain.keys() & held.keys()
    return sum(held[p][1] for p in common) / sum(plain[p][1] for p in common) - 1


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stack", default="smollm2-cpu", help="name or file")
    parser.add_argument("--auto", default="eagle3-auto", help="its variant that chooses k")
    parser.add_argument("--workload", default="chat")
    parser.add_argument("--users", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--pairs", type=int, default=4, help="of a start")
    parser.add_argument("--starts", type=int, default=4, help="of both engines")
    parser.add_argument("--in-turn", action="store_true", help="one engine after the other, never both")
    asked = parser.parse_args()
    if asked.starts < 2:
        parser.error("--starts: a standard error needs two at least")
    try:
        stack = pair_of_variants(find_stack(asked.stack), asked.auto)
        orders = itertools.islice(itertools.cycle((("plain", "held"), ("held", "plain"))), asked.starts)
        found = [one_start(asked, stack, order) for order in orders]
    except OutriderError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(1)
    sys.exit(0 if report(found, asked.users) else 1)


@dataclass(slots=True)
class Found:
    """What one start of both engines showed at one number of users.

    Attributes:
        ratios: by which share the controlled engine took longer a token, by pair.
        spent_s: CPU time of the controller, as it counts.
        steps: of its engine, meanwhile.
        busy_s: length of its windows.
    """

    ratios: list[float]
    spent_s: float
    steps: float
    busy_s: float


def visits(order: tuple[str, str], users: list[int], pairs: int, *, in_turn: bool) -> Iterator[tuple[int, int, str]]:
    """Which engine is loaded when: number of users, pair, variant."""
    if in_turn:
        yield from ((count, pair, variant) for variant in order for count in users for pair in range(pairs))
        return
    for count, pair in itertools.product(users, range(pairs)):
        there = ("plain", "held") if pair % 2 else ("held", "plain")
        yield from ((count, pair, variant) for variant in (*there, *reversed(there)))


def one_start(asked: argparse.Namespace, stack: Stack, order: tuple[str, str]) -> dict[int, Found]:
    """Start both engines in `order`, load them in turn, and stop them; by number of users."""
    pace = Pace(asked.seconds, 512, 16) if stack.engine.build == "cuda" else Pace(asked.seconds, 128, 1)
    found = {count: Found([], 0.0, 0.0, 0.0) for count in asked.users}
    phases: dict[tuple[int, int], dict[str, list[Any]]] = {}
    with (
        tempfile.TemporaryDirectory() as state,
        Engines(stack, LocalRuntime(Path(state)), side_by_side=not asked.in_turn) as engines,
    ):
        # One after the other: engines on one GPU that measure free memory at the same time mislead each other.
        for variant in () if asked.in_turn else order:
            engines.get(variant)
        for count, pair, variant in visits(order, asked.users, asked.pairs, in_turn=asked.in_turn):
            url = engines.get(variant).running.url
            before = utility_state(url)
            row = run_phase(stack, url, Phase(asked.workload, count), pace, seed=pair)
            after = utility_state(url)
            phases.setdefault((count, pair), {"plain": [], "held": []})[variant].append(row)
            print(f"{order[0]} first, {variant}, {count} users: {row['tpot_s'] * 1e3:.3f} ms a token", file=sys.stderr)
            if variant == "held":
                one = found[count]
                one.busy_s += row["window_s"]
                one.spent_s += after["overhead_s"] - before["overhead_s"]
                one.steps += sum(after["steps"].values()) - sum(before["steps"].values())
    for (count, _), runs in phases.items():
        pairs = zip(runs["plain"], runs["held"], strict=True)
        found[count].ratios.append(statistics.mean(slower(a["tpot_by_prompt"], b["tpot_by_prompt"]) for a, b in pairs))
    for count in asked.users:
        print(f"{order[0]} first, {count} users: " + " ".join(f"{one:+.2%}" for one in found[count].ratios), flush=True)
    return found


def report(found: list[dict[int, Found]], users: list[int]) -> bool:
    """Print a line for each number of users; whether nothing speaks against the promise."""
    print("\n| users | slower by | standard error over starts | controller, µs a step | share of the time |")
    print("|---|---|---|---|---|")
    kept = True
    for count in users:
        starts = [start[count] for start in found]
        medians = [statistics.median(one.ratios) for one in starts]
        mean, error = statistics.mean(medians), statistics.stdev(medians) / len(medians) ** 0.5
        spent = sum(one.spent_s for one in starts)
        a_step, share = spent / sum(one.steps for one in starts), spent / sum(one.busy_s for one in starts)
        print(f"| {count} | {mean:+.2%} | {error:.2%} | {a_step * 1e6:.0f} | {share:.3%} |")
        kept &= mean - 2 * error < PROMISE and share < PROMISE
    print(f"\n{'PASS' if kept else 'FAIL'}  below {PROMISE:.1%} of step time")
    return kept


if __name__ == "__main__":
    main()
