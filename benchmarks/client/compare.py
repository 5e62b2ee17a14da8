"""Chunks handled per client CPU-second: Outrider, `vllm bench serve` and GuideLLM on one replay server.

    python benchmarks/client/compare.py [--guidellm PATH/TO/guidellm] [--streams 128] [--gap 0.05] [--seconds 10]

For each client: wait until its streams run, then hold the chunks that the server sent in some seconds against the
CPU time (user + system) that the client's process tree took for them. Start-up does not enter. vLLM has to be
installed here; GuideLLM lives in an environment of its own (`python -m venv /tmp/guidellm`, then pip).
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from urllib.request import urlopen

import psutil

from outrider.load import LoadPlan
from outrider.load.verify import bench_argv, bench_environment
from replay import Replay, write_prompts


def main() -> None:
    """Run all clients, print their rates."""
    parser = argparse.ArgumentParser(description="chunks per client CPU-second, side by side")
    parser.add_argument("--guidellm", type=Path, help="GuideLLM's executable; left out without it")
    parser.add_argument("--streams", type=int, default=128)
    parser.add_argument("--gap", type=float, default=0.05)
    parser.add_argument("--chunks", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    script = f"chunks={options.chunks};gap={options.gap}"
    with tempfile.TemporaryDirectory() as name, Replay() as replay:
        scratch = Path(name)
        enough = options.streams * (4 + int(options.seconds / (options.gap * options.chunks)))
        file = write_prompts(scratch / "prompts.jsonl", enough)
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
        rates: dict[str, list[float]] = {client: [] for client in clients}
        for _ in range(options.repeat):  # interleaved: what else the machine does meets all of them
            for client, (argv, environment) in clients.items():
                rate = measure(argv(enough), environment, scratch, replay, options.streams, options.seconds)
                rates[client].append(rate)
                print(f"{client}: {rate:,.0f} chunks per CPU-second", flush=True)
        ours = median(rates["outrider"])
        for client, found in rates.items():
            print(f"{client}: median {median(found):,.0f}, Outrider handles {ours / median(found):.2f} times as many")


def measure(
    argv: list[str], environment: dict[str, str] | None, scratch: Path, replay: Replay, streams: int, seconds: float
) -> float:
    """Chunks per CPU-second of a client that runs."""
    with (scratch / "log").open("wb") as log:
        client = subprocess.Popen(
            argv, env=environment, cwd=scratch, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            begun = chunks(replay) + 10 * streams  # every stream has got some
            while chunks(replay) < begun:
                if client.poll() is not None:
                    sys.exit(f"{argv[:4]} ended early:\n{(scratch / 'log').read_text()[-3000:]}")
                time.sleep(0.2)
            before, cpu = chunks(replay), tree_cpu_s(client.pid)
            time.sleep(seconds)
            return (chunks(replay) - before) / (tree_cpu_s(client.pid) - cpu)
        finally:
            os.killpg(client.pid, signal.SIGKILL)
            client.wait()


def chunks(replay: Replay) -> int:
    """Content chunks that the server has sent."""
    with urlopen(f"{replay.url}/chunks") as answer:
        return int(answer.read())


def tree_cpu_s(pid: int) -> float:
    """User and system time of a process and all that descend from it."""
    root = psutil.Process(pid)
    times = [process.cpu_times() for process in (root, *root.children(recursive=True))]
    return sum(t.user + t.system for t in times)


if __name__ == "__main__":
    main()
