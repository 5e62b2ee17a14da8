"""Memory of the load process over as many requests as an hour brings.

    python benchmarks/client/soak.py [--requests 36000] [--users 32]

36,000 requests are an hour at ten a second. The replay server answers fast, so they take minutes. Rows go to
a file, as a soak's should. Ends with code 1 if memory grew by more than 5 % after the first tenth.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import psutil

from outrider.load import LoadPlan, Progress, run_load
from replay import Replay, write_prompts


def main() -> int:
    """Run, watch the load process's memory, judge."""
    parser = argparse.ArgumentParser(description="memory of the load process over a soak")
    parser.add_argument("--requests", type=int, default=36_000)
    parser.add_argument("--users", type=int, default=32)
    options = parser.parse_args()
    seen: list[tuple[int, int]] = []

    def look(progress: Progress) -> None:
        workers = [p for p in psutil.Process().children() if "outrider.load.worker" in p.cmdline()]
        seen.extend((progress.measured, worker.memory_info().rss) for worker in workers)

    with tempfile.TemporaryDirectory() as name, Replay() as replay:
        scratch = Path(name)
        plan = LoadPlan(
            url=replay.url,
            model="chunks=10,gap=0.002,jitter=0.001,tokens=1:2",
            prompts_file=write_prompts(scratch / "prompts.jsonl", 500),
            arrivals={"kind": "closed", "concurrency": options.users},
            requests=options.requests,
            records_file=scratch / "records.jsonl",
        )
        result = run_load(plan, on_progress=look).result
        rows = (scratch / "records.jsonl").stat().st_size
    early = [rss for measured, rss in seen if measured <= options.requests / 10][-1]
    late = max(rss for _, rss in seen)
    print(f"{result.outcomes} in {result.window_s:.0f} s, {rows / 1e6:.0f} MB of rows on disk")
    print(f"memory: {early / 1e6:.1f} MB after a tenth, {late / 1e6:.1f} MB at most, {late / early - 1:+.1%}")
    return 0 if late <= 1.05 * early else 1


if __name__ == "__main__":
    sys.exit(main())
