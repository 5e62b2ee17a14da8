"""Chunks handled per client CPU-second: Outrider, `vllm bench serve` and GuideLLM on one replay server.

    python benchmarks/client/compare.py [--guidellm PATH/TO/guidellm] [--streams 128] [--gap 0.05]

Each client runs twice, with few and with many requests; the differences of chunks and of CPU time (user +
system, of the client's whole process tree) leave out start-up. vLLM has to be installed here; GuideLLM lives
in an environment of its own (`python -m venv /tmp/guidellm && /tmp/guidellm/bin/pip install guidellm`).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from outrider.load import LoadPlan
from outrider.load.verify import bench_argv, bench_environment
from replay import Replay, write_prompts


def main() -> None:
    """Run all clients, print their rates."""
    parser = argparse.ArgumentParser(description="chunks per client CPU-second, side by side")
    parser.add_argument("--guidellm", type=Path, help="GuideLLM's executable; left out without it")
    parser.add_argument("--streams", type=int, default=128)
    parser.add_argument("--gap", type=float, default=0.05)
    parser.add_argument("--chunks", type=int, default=100)
    parser.add_argument("--rounds", type=int, nargs=2, default=(1, 4), metavar=("FEW", "MANY"))
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    script = f"chunks={options.chunks};gap={options.gap}"
    with tempfile.TemporaryDirectory() as name, Replay() as replay:
        scratch = Path(name)
        most = options.streams * (max(options.rounds) + 2)
        file = write_prompts(scratch / "prompts.jsonl", most)
        bench = bench_environment(scratch)

        def outrider(n: int) -> list[str]:
            return [
                *(
                    sys.executable,
                    "-c",
                    "from outrider.load.commands import load_command as c; import typer; typer.run(c)",
                ),
                *(replay.url, "--model", script, "--prompts", str(file), "--concurrency", str(options.streams)),
                *("--requests", str(n), "--warmup", "0", "--max-tokens", str(options.chunks)),
                *("--json", str(scratch / "outrider.json")),
            ]

        def vllm(n: int) -> list[str]:
            plan = LoadPlan(
                url=replay.url,
                model=script,
                prompts_file=file,
                arrivals={"kind": "closed", "concurrency": options.streams},
                requests=n,
                warmup_requests=0,
                max_tokens=options.chunks,
            )
            return bench_argv(plan, file, n, scratch / "bench.json")

        def guidellm(n: int) -> list[str]:
            return [
                *(str(options.guidellm), "run", "--backend", f"kind=openai_http,target={replay.url},model={script}"),
                *("--profile", f"kind=concurrent,streams={options.streams}"),
                *("--constraint", f"kind=max_requests,count={n}", "--data", f"kind=json_file,path={file}"),
                *("--output", f"kind=json,path={scratch / 'guidellm.json'}", "--disable-console-interactive"),
            ]

        clients = {"outrider": (outrider, None), "vllm bench serve": (vllm, bench)}
        if options.guidellm:
            clients["guidellm"] = (guidellm, None)
        few, many = (n * options.streams for n in options.rounds)
        rates: dict[str, list[float]] = {client: [] for client in clients}
        for _ in range(options.repeat):  # interleaved: what else the machine does meets all of them
            for client, (argv, environment) in clients.items():
                small, large = (cpu_s(argv(n), environment, scratch) for n in (few, many))
                rates[client].append((many - few) * options.chunks / (large - small))
                print(f"{client}: {rates[client][-1]:,.0f} chunks per CPU-second", flush=True)
        ours = median(rates["outrider"])
        for client, found in rates.items():
            print(f"{client}: median {median(found):,.0f}, Outrider handles {ours / median(found):.2f} times as many")


def cpu_s(argv: list[str], environment: dict[str, str] | None, scratch: Path) -> float:
    """User and system time of a command with all its children."""
    with (scratch / "log").open("wb") as log:
        process = subprocess.Popen(argv, env=environment, cwd=scratch, stdout=log, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in {0, 3}:
        sys.exit(f"{argv[:4]} failed with {process.returncode}:\n{(scratch / 'log').read_text()[-3000:]}")
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
