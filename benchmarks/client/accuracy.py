"""TTFT and TPOT against recorded truth: 128 streams of 20 chunks a second each.

    python benchmarks/client/accuracy.py [--streams 128] [--gap 0.05] [--chunks 100] [--rounds 2]

Wanted: median TPOT within 1 %, p99 within 3 %, TTFT within 2 ms + 1 %. Ends with code 1 where that fails.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from outrider.load import LoadPlan, run_load
from replay import Replay, write_prompts


def main() -> int:
    """Run, print, judge."""
    parser = argparse.ArgumentParser(description="TTFT and TPOT against recorded truth")
    parser.add_argument("--streams", type=int, default=128)
    parser.add_argument("--gap", type=float, default=0.05)
    parser.add_argument("--chunks", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    requests = options.streams * options.rounds
    with tempfile.TemporaryDirectory() as scratch, Replay(Path(scratch) / "truth.jsonl") as replay:
        outcome = run_load(
            LoadPlan(
                url=replay.url,
                model=f"chunks={options.chunks},gap={options.gap},jitter={options.gap / 4},tokens=1:2:3",
                prompts_file=write_prompts(Path(scratch) / "prompts.jsonl", requests + 3 * options.streams),
                arrivals={"kind": "closed", "concurrency": options.streams},
                requests=requests,
            )
        )
        rows = [row for row in outcome.records if row.phase == "measured"]
        truth = replay.truth()
    result = outcome.result
    client = result.client
    print(f"{result.outcomes}, {result.chunks / result.window_s:.0f} chunks/s, client {client.cpu_share:.1%} of a core")
    print(f"event-loop lag: mean {client.lag_mean_s * 1e3:.2f} ms, p99 {client.lag_p99_s * 1e3:.2f} ms")
    to_server, to_client = [], []
    for row in rows:
        true = truth[row.prompt_id]
        origin = result.window_start_unix - true["unix"]
        to_server.append(true["received"] - (origin + row.sent_at_s))
        to_client.append(origin + row.first_at_s - true["sends"][0])
    for name, values in (("client wrote to server read", to_server), ("server wrote to client read", to_client)):
        print(f"{name}: p50 {quantile(values, 0.5) * 1e3:.3f} ms, p99 {quantile(values, 0.99) * 1e3:.3f} ms")
    fine = True
    for name, q, relative, absolute_s in (
        ("tpot", 0.5, 0.01, 0.0),
        ("tpot", 0.99, 0.03, 0.0),
        ("ttft", 0.5, 0.01, 0.002),
        ("ttft", 0.99, 0.01, 0.002),
    ):
        ours = quantile([getattr(row, f"{name}_s") for row in rows], q)
        true = quantile([exact(name, truth[row.prompt_id]) for row in rows], q)
        good = abs(ours - true) <= relative * true + absolute_s
        fine &= good
        print(
            f"{name} p{q * 100:.0f}: {ours * 1e3:.3f} ms, truth {true * 1e3:.3f} ms, "
            f"off by {ours / true - 1:+.3%} ({(ours - true) * 1e3:+.3f} ms) {'ok' if good else 'TOO FAR'}"
        )
    return 0 if fine else 1


def exact(name: str, truth: dict) -> float:
    """TTFT or TPOT from the times at which the server sent."""
    sends, tokens = truth["sends"], truth["tokens"]
    if name == "ttft":
        return sends[0] - truth["received"]
    return (sends[-1] - sends[0]) / (tokens[-1] - tokens[0])


def quantile(values: list[float], q: float) -> float:
    """Nearest rank."""
    return sorted(values)[min(len(values) - 1, int(q * len(values)))]


if __name__ == "__main__":
    sys.exit(main())
