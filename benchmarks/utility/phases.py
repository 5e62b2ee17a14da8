"""Does choosing k at run time keep up with the best static k in each phase of changing traffic, and beat each over all?

    python benchmarks/utility/phases.py [--seconds 20] [--repeats 2] [--out phases.json]

Serves the embedded target with k = 0 (no drafter), k = 1 and k = 3 fixed and with `eagle3-auto`, side by side, and
takes them through the same phases: extraction, chat, code, long prompts; 1, 8 and 32 users. Within a phase the engines
are loaded one after the other, each with the same prompts, in an order that rotates; the engine that chooses k keeps
what it learnt from phase to phase, as in service. Needs a quiet machine: two cores are one engine's worth.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outrider.campaign.engines import Engines
from outrider.load import LoadPlan, run_load
from outrider.runtime.local import LocalRuntime
from outrider.stack import find_stack

if TYPE_CHECKING:
    from outrider.stack import Stack

PHASES = (
    ("extraction", 1), ("chat", 1), ("chat", 8), ("code", 8),
    ("code", 32), ("long", 32), ("extraction", 8), ("long", 1),
)  # fmt: skip
AUTO = "eagle3-auto"
STATIC = {"baseline": 0, "eagle3-k1": 1, "eagle3": 3}


def with_static_variants(stack: Stack) -> Stack:
    """The stack with its drafter at k = 1 as well."""
    source = stack.variant("eagle3")
    assert source.speculation is not None
    one = source.model_copy(update={"speculation": source.speculation.model_copy(update={"k": 1})})
    return stack.model_copy(update={"variants": {**stack.variants, "eagle3-k1": one}})


def tokens_per_second(stack: Stack, url: str, phase: tuple[str, int], seconds: float, seed: int) -> float:
    """Output tokens a second of one engine in one phase."""
    workload, users = phase
    plan = LoadPlan(
        url=url,
        model=stack.target.served_name,
        workload=workload,
        prompt_seed=seed,
        arrivals={"kind": "closed", "concurrency": users},  # type: ignore[arg-type]
        duration_s=seconds,
        max_tokens=128,
        engine=stack.engine.name,
        extra_body={"cache_salt": f"{workload}{users}{seed}"},
    )
    result = run_load(plan).result
    # Speed while decoding, of all users: prefills cost every variant the same and would only dilute it.
    return users / result.tpot_s.mean if result.tpot_s.mean else math.nan


def measure(seconds: float, repeats: int, state: Path) -> list[dict[str, Any]]:
    """One row a repeat and phase: tokens per second by variant."""
    stack = with_static_variants(find_stack("smollm2-cpu"))
    variants = [*STATIC, AUTO]
    rows: list[dict[str, Any]] = []
    with Engines(stack, LocalRuntime(state), side_by_side=True) as engines:
        failed = engines.start(variants)
        if failed:
            sys.exit("\n".join(str(error) for error in failed.values()))
        for repeat in range(repeats):
            for number, phase in enumerate(PHASES):
                turn = (repeat + number) % len(variants)
                row: dict[str, Any] = {"repeat": repeat, "phase": f"{phase[0]}@{phase[1]}"}
                for variant in variants[turn:] + variants[:turn]:
                    url = engines.get(variant).running.url
                    row[variant] = tokens_per_second(stack, url, phase, seconds, seed=100 * repeat + number)
                rows.append(row)
                sys.stderr.write(json.dumps(row) + "\n")
        log = engines.get(AUTO).running.log_lines()
        sys.stderr.write("".join(f"{line}\n" for line in log if "utility:" in line))
    return rows


def summary(rows: list[dict[str, Any]]) -> tuple[list[str], bool]:
    """The table as Markdown, and whether every number that is promised was reached."""
    lines = ["| phase | " + " | ".join([*STATIC, AUTO]) + " | auto / best static | auto / baseline |"]
    lines.append("|---" * (len(STATIC) + 4) + "|")
    reached = True
    time = dict.fromkeys([*STATIC, AUTO], 0.0)
    for phase in dict.fromkeys(row["phase"] for row in rows):
        own = [row for row in rows if row["phase"] == phase]
        speed = {v: math.exp(math.fsum(math.log(row[v]) for row in own) / len(own)) for v in time}
        for variant, value in speed.items():
            time[variant] += 1 / value
        best = speed[AUTO] / max(speed[v] for v in STATIC)
        plain = speed[AUTO] / speed["baseline"]
        reached &= best >= 0.95 and plain >= 0.98
        values = " | ".join(f"{v:.1f}" for v in speed.values())
        lines.append(f"| {phase} | {values} | {best:.3f} | {plain:.3f} |")
    # Over all: equally many tokens in each phase.
    whole = {v: len(lines[2:]) / t for v, t in time.items()}
    best = whole[AUTO] / max(whole[v] for v in STATIC)
    reached &= best >= 1.03
    values = " | ".join(f"{v:.1f}" for v in whole.values())
    lines.append(f"| all | {values} | {best:.3f} | {whole[AUTO] / whole['baseline']:.3f} |")
    return lines, reached


def main() -> None:
    """Measure, print, write; ends with 1 where a promised number is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as state:
        rows = measure(asked.seconds, asked.repeats, Path(state))
    if asked.out:
        asked.out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    lines, reached = summary(rows)
    print("\n".join(lines))
    sys.exit(0 if reached else 1)


if __name__ == "__main__":
    main()
