"""What the controller takes of each engine step, alone: microseconds a step by batch size and length of a step.

    python benchmarks/utility/step_cost.py [--steps 20000]

Feeds the hook step outputs of the engine's form, with k held (no test, no switch) and with k chosen. The engine's clock
is simulated at 20 and at 2 ms a step, so that the state file is written as often as it would be and as few of the short
steps are taken in as would be; what is measured is this process's CPU time.
"""

from __future__ import annotations

import argparse
import logging
import time
from types import SimpleNamespace

from outrider.vllm_ext.hook import Hook
from outrider.vllm_ext.settings import Settings
from outrider.vllm_ext.state_file import StateFile, state_path

_STEPS_S = (0.020, 0.002)


def outputs(batch: int, k: int) -> list[tuple[SimpleNamespace, SimpleNamespace]]:
    """A few step outputs: SchedulerOutput and ModelRunnerOutput, as far as the hook reads them."""
    names = [f"chatcmpl-{i:032x}" for i in range(batch)]
    found = []
    for turn in range(8):
        lengths = [1 + (i + turn) % (k + 1) for i in range(batch)]
        scheduled = SimpleNamespace(
            num_scheduled_tokens=dict.fromkeys(names, 1 + k),
            total_num_scheduled_tokens=batch * (1 + k),
            num_spec_tokens_to_schedule=k,
            scheduled_new_reqs=[],
        )
        ran = SimpleNamespace(
            req_id_to_index={name: i for i, name in enumerate(names)}, sampled_token_ids=[[7] * m for m in lengths]
        )
        found.append((scheduled, ran))
    return found


def cost_s(batch: int, steps: int, step_s: float, *, hold: bool) -> tuple[float, int]:
    """CPU seconds of one step, and how few are taken in at the end (one in so many)."""
    now = [0.0]
    lookup = [0] + [3] * 256
    hook = Hook(
        lookup,
        lambda: Settings(prior=((1, 256, 3),), ks=(0, 1, 2, 3), hold=hold),
        StateFile(state_path(), logging.getLogger("benchmark")),
        logging.getLogger("benchmark"),
        engine_k=3,
        clock=lambda: now[0],
    )
    by_k = {k: outputs(batch, k) for k in range(4)}
    live = set(by_k[0][0][1].req_id_to_index)
    spent = 0
    for step in range(steps):
        scheduled, ran = by_k[lookup[batch]][step % 8]
        now[0] += step_s
        began = time.process_time_ns()
        hook.step(scheduled, ran, live)
        spent += time.process_time_ns() - began
    hook.close()
    if hook.fault is not None:
        raise SystemExit(hook.fault)
    return spent / steps / 1e9, hook.pace.stride


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20_000)
    steps = parser.parse_args().steps
    cost_s(1, 500, 0.020, hold=True)
    print("| step, ms | batch | k held, µs a step | k chosen, µs a step | share of a step | taken in, one in |")
    print("|---|---|---|---|---|---|")
    for step_s in _STEPS_S:
        for batch in (1, 8, 32, 128):
            (held, _), (chosen, stride) = (cost_s(batch, steps, step_s, hold=hold) for hold in (True, False))
            share = max(held, chosen) / step_s
            print(f"| {step_s * 1e3:.0f} | {batch} | {held * 1e6:.1f} | {chosen * 1e6:.1f} | {share:.2%} | {stride} |")


if __name__ == "__main__":
    main()
