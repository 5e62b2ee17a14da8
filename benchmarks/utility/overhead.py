"""What the controller costs in the engine, with k forced equal: the engine's scheduler against ours holding its prior.

    python benchmarks/utility/overhead.py [--seconds 10] [--pairs 6]

Both engines run k = 3 by a schedule, so that they differ in the controller only. They are loaded in turn with the same
prompts; the ratio is that of each pair, with its spread over pairs. Beside it stands what the controller counts itself:
its CPU time over its engine's steps, which a noisy machine does not blur.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

import httpx
from phases import tokens_per_second
from prometheus_client.parser import text_string_to_metric_families

from outrider.campaign.engines import Engines
from outrider.runtime.local import LocalRuntime
from outrider.stack import Stack, find_stack

USERS = (1, 8)


def pair_of_variants() -> Stack:
    """`plain`: k = 3 by a schedule; `held`: the same under the controller, which never leaves it."""
    stack = find_stack("smollm2-cpu")
    auto = stack.variant("eagle3-auto")
    assert auto.speculation is not None
    scheduled = auto.speculation.model_copy(update={"auto": False, "schedule": ((1, 32, 3),)})
    variants = {
        "baseline": stack.variant("baseline"),
        "plain": auto.model_copy(update={"speculation": scheduled}),
        "held": auto.model_copy(
            update={"env": {"OUTRIDER_UTILITY": '{"prior":[[1,32,3]],"ks":[0,1,2,3],"hold":true}'}}
        ),
    }
    return stack.model_copy(update={"variants": variants})


def counted(url: str) -> tuple[float, float]:
    """CPU seconds of the controller and steps so far."""
    seconds = steps = 0.0
    for family in text_string_to_metric_families(httpx.get(f"{url}/metrics", timeout=60).text):
        for sample in family.samples:
            if sample.name == "outrider_utility_overhead_seconds_total":
                seconds = sample.value
            elif sample.name == "outrider_utility_steps_total":
                steps += sample.value
    return seconds, steps


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--pairs", type=int, default=6)
    asked = parser.parse_args()
    stack = pair_of_variants()
    print("| users | slower by, median of pairs | its spread (quartiles) | controller, µs a step | share of the time |")
    print("|---|---|---|---|---|")
    with (
        tempfile.TemporaryDirectory() as state,
        Engines(stack, LocalRuntime(Path(state)), side_by_side=True) as engines,
    ):
        engines.start(["plain", "held"])
        urls = {variant: engines.get(variant).running.url for variant in ("plain", "held")}
        for users in USERS:
            ratios: list[float] = []
            spent, steps = counted(urls["held"])
            for pair in range(asked.pairs):
                order = ("plain", "held") if pair % 2 else ("held", "plain")
                speed = {v: tokens_per_second(stack, urls[v], ("chat", users), asked.seconds, pair) for v in order}
                ratios.append(speed["plain"] / speed["held"] - 1)
            more, after = counted(urls["held"])
            low, middle, high = statistics.quantiles(ratios, n=4)
            busy = asked.seconds * asked.pairs
            print(
                f"| {users} | {middle:+.2%} | {low:+.2%} to {high:+.2%} | "
                f"{(more - spent) / (after - steps) * 1e6:.0f} | {(more - spent) / busy:.3%} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
