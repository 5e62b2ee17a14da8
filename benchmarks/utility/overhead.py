"""What the controller costs in the engine, with k forced equal: the engine's scheduler against ours holding its prior.

    python benchmarks/utility/overhead.py [--stack smollm2-cpu] [--seconds 10] [--pairs 6]

Both engines run the same k by a schedule, so that they differ in the controller only. They stand side by side and are
loaded in turn with the same prompts; the ratio is that of each pair, with its spread over pairs. Beside it stands what
the controller counts itself: its CPU time over its engine's steps, which a noisy machine does not blur. It may cost
less: on a GPU, steps that are scheduled ahead hide it. Ends with 1 where a median of pairs is above the promise.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from traffic import Pace, Phase, run_phase, utility_state

from outrider.campaign.engines import Engines
from outrider.errors import OutriderError, StackError
from outrider.runtime.local import LocalRuntime
from outrider.stack import find_stack
from outrider.vllm_ext.settings import choices

if TYPE_CHECKING:
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
    parser.add_argument("--users", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--pairs", type=int, default=6)
    asked = parser.parse_args()
    if asked.pairs < 2:
        parser.error("--pairs: a spread needs two at least")
    try:
        stack = pair_of_variants(find_stack(asked.stack), asked.auto)
        kept = compare(stack, asked.users, asked.seconds, asked.pairs)
    except OutriderError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(1)
    sys.exit(0 if kept else 1)


def compare(stack: Stack, users: list[int], seconds: float, pairs: int) -> bool:
    """Print a line for each number of users; whether the promise is kept in all."""
    gpu, worst = stack.engine.build == "cuda", -1.0
    pace = Pace(seconds, 512 if gpu else 128, 16 if gpu else 1)
    with (
        tempfile.TemporaryDirectory() as state,
        Engines(stack, LocalRuntime(Path(state)), side_by_side=True) as engines,
    ):
        # One after the other: engines on one GPU that measure free memory at the same time mislead each other.
        urls = {variant: engines.get(variant).running.url for variant in ("plain", "held")}
        print("| users | slower by, median of pairs | its quartiles | controller, µs a step | share of the time |")
        print("|---|---|---|---|---|")
        for count in users:
            ratios, busy = list[float](), 0.0
            before = utility_state(urls["held"])
            for pair in range(pairs):
                found = {}
                for variant in ("plain", "held") if pair % 2 else ("held", "plain"):
                    found[variant] = run_phase(stack, urls[variant], Phase("chat", count), pace, seed=pair)
                busy += found["held"]["window_s"]
                ratios.append(slower(found["plain"]["tpot_by_prompt"], found["held"]["tpot_by_prompt"]))
            after = utility_state(urls["held"])
            low, middle, high = statistics.quantiles(ratios, n=4)
            spent = after["overhead_s"] - before["overhead_s"]
            steps = sum(after["steps"].values()) - sum(before["steps"].values())
            quartiles = f"{low:+.2%} to {high:+.2%}"
            print(
                f"| {count} | {middle:+.2%} | {quartiles} | {spent / steps * 1e6:.0f} | {spent / busy:.3%} |",
                flush=True,
            )
            worst = max(worst, middle)
    print(f"\n{'PASS' if worst < PROMISE else 'FAIL'}  below {PROMISE:.1%} of step time: {worst:+.2%}")
    return worst < PROMISE


if __name__ == "__main__":
    main()
