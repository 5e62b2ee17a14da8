"""Is a trained drafter as good after passes that were put off as after a pass a step?

    python benchmarks/utility/deferred_pass.py [--stack smollm2-h200] [--plain 128] [--drafted 300] [--float32 --eager]

Greedy requests that the engine decodes at k = 0 for a while and then drafts for, three times: with the engine's own
pass a step, with passes put off and made up for, and put off and dropped. What is accepted afterwards tells whether the
drafter's cache is what it was; the third tells how much there was to lose. Synthetic acceptance would hide it, so it
needs a trained head. Prints JSON lines as they come, and a table. Ends with 1 where the drafter is worse by more than a
hundredth of what dropping passes costs plus 0.5 % (bfloat16 rounds batches of other sizes otherwise), or where no pass
was put off.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from typing import Any

from outrider.engine.vllm import engine_python
from outrider.errors import OutriderError
from outrider.load.workloads import load_workload
from outrider.model_store import locate
from outrider.stack import find_stack
from outrider.vllm_ext.deferred_pass.plugin import STEPS, VARIABLE

WAYS = ("engine", "deferred", "forgotten")
WORSE = 0.005


def child(asked: dict[str, Any]) -> None:
    """Answer in this process, and print what was accepted."""
    from vllm import LLM, SamplingParams  # noqa: PLC0415 - only the engine's interpreter has it

    from outrider.vllm_ext.deferred_pass.policy import Deferred  # noqa: PLC0415

    if asked["way"] == "forgotten":
        Deferred.catch_up = Deferred.forget  # type: ignore[method-assign]
    llm = LLM(**asked["engine"])
    # One request more than is drafted for, and it ends first.
    lengths = [asked["plain"], *(asked["plain"] + asked["drafted"] for _ in asked["prompts"][1:])]
    sampling = [SamplingParams(temperature=0, max_tokens=length, ignore_eos=True) for length in lengths]
    outputs = llm.chat(asked["prompts"], sampling, use_tqdm=False)
    found = {m.name: getattr(m, "value", getattr(m, "values", None)) for m in llm.get_metrics()}
    counters = {name: found[f"vllm:spec_decode_num_{name}"] for name in ("drafts", "draft_tokens", "accepted_tokens")}
    answers = [list(output.outputs[0].token_ids) for output in outputs]
    counts = llm.collective_rpc("deferred_pass_counts")[0] if asked["way"] != "engine" else (0, 0)
    per_position = found["vllm:spec_decode_num_accepted_tokens_per_pos"]
    print("RESULT " + json.dumps([counters, per_position, counts, answers]), flush=True)


def engine_arguments(stack_name: str, variant: str, most: int, *, float32: bool, eager: bool) -> dict[str, Any]:
    """What vLLM's LLM is made with: the stack's target and head, k = 0 from `most` requests on."""
    stack = find_stack(stack_name)
    spec = stack.variant(variant).speculation
    located = locate(stack, variant)
    if spec is None or located.drafter_dir is None:
        raise OutriderError(f"variant {variant} of {stack_name} has no drafter", next_step="name one that has")
    kept = ("compilation-config", "kernel-config")
    flags = {name.replace("-", "_"): stack.engine.flags[name] for name in kept if name in stack.engine.flags}
    schedule = [[1, most - 1, spec.k], [most, max(most, stack.memory.max_num_seqs or most), 0]]
    return {
        "model": str(located.model_dir), "dtype": "float32" if float32 else stack.target.dtype,
        "max_model_len": stack.target.max_model_len, "max_num_seqs": schedule[-1][1], "enforce_eager": eager,
        "enable_prefix_caching": False, "disable_log_stats": False, "gpu_memory_utilization": 0.3,
        "worker_extension_cls": "outrider.vllm_ext.worker.WorkerExtension",
        "speculative_config": {
            "method": spec.method, "model": str(located.drafter_dir), "num_speculative_tokens": spec.k,
            "num_speculative_tokens_per_batch_size": schedule,
        },
    } | ({} if eager else flags)  # fmt: skip


def run(asked: dict[str, Any], build: str) -> tuple[dict[str, float], list[float], list[int], list[list[int]]]:
    """One way, in a process of its own.

    Raises:
        OutriderError: the engine gave no result, with the end of its log.
    """
    env = {**os.environ, "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "HF_HUB_OFFLINE": "1"}
    env["VLLM_USE_FLASHINFER_SAMPLER"] = "0"
    env[VARIABLE] = "" if asked["way"] == "engine" else str(STEPS[build])
    command = [engine_python(), __file__, "--child", json.dumps(asked)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    line = next((line for line in done.stdout.splitlines() if line.startswith("RESULT ")), None)
    if line is None:
        raise OutriderError(
            f"no result with {asked['way']}",
            evidence=(done.stdout + done.stderr)[-3000:],
            next_step="see the end of its log",
        )
    counters, per_position, counts, answers = json.loads(line.removeprefix("RESULT "))
    return counters, per_position, counts, answers


def main() -> None:
    """Run all three, and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stack", default="smollm2-h200", help="name or file")
    parser.add_argument("--variant", default="eagle3-auto", help="whose drafter and k")
    parser.add_argument("--workload", default="chat")
    parser.add_argument("--requests", type=int, default=16, help="that are drafted for")
    parser.add_argument("--plain", type=int, default=128, help="tokens at k = 0")
    parser.add_argument("--drafted", type=int, default=300, help="tokens after them, of each request")
    parser.add_argument("--float32", action="store_true", help="so that nothing is rounded from one token to another")
    parser.add_argument("--eager", action="store_true", help="no graphs")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        child(json.loads(asked.child))
        return
    try:
        prompts = load_workload(asked.workload, count=asked.requests + 1).prompts
        engine = engine_arguments(
            asked.stack, asked.variant, asked.requests + 1, float32=asked.float32, eager=asked.eager
        )
        job = {"engine": engine, "plain": asked.plain, "drafted": asked.drafted,
               "prompts": [list(p.messages) for p in prompts]}  # fmt: skip
        build, found = find_stack(asked.stack).engine.build, dict[str, Any]()
        for way in WAYS:
            found[way] = run(job | {"way": way}, build)
            counters, per_position, counts, _ = found[way]
            row = {"way": way, **counters, "accepted_per_pos": per_position, "put_off": counts[0], "made_up": counts[1]}
            print(json.dumps(row), flush=True)
    except OutriderError as error:
        sys.exit(str(error))
    length = {way: 1 + c["accepted_tokens"] / c["drafts"] for way, (c, *_) in found.items()}
    same = {way: sum(a == b for a, b in zip(found[way][3], found["engine"][3], strict=True)) for way in WAYS}
    print("\n| passes | drafts | tokens a step | against the engine's | passes put off | made up for | same answers |")
    print("|---" * 7 + "|")
    for way, (counters, _, counts, answers) in found.items():
        share = f"{length[way] / length['engine'] - 1:+.2%}"
        print(f"| {way} | {counters['drafts']:.0f} | {length[way]:.4f} | {share} | {counts[0]} | {counts[1]} |"
              f" {same[way]} of {len(answers)} |")  # fmt: skip
    lost = 0.01 * (length["engine"] - length["forgotten"]) + WORSE * length["engine"]
    sys.exit(0 if found["deferred"][2][0] and length["deferred"] >= length["engine"] - lost else 1)


if __name__ == "__main__":
    main()
