"""Requests decoded at k = 0 for a while and then drafted for, as JSON: `deferred_answers.py MODEL HEAD HOW SIZE`.

HOW: `engine`, the engine's own pass a step; `deferred`, passes put off and made up for; `forgotten`, put off and never
made up for. SIZE: tokens of the longer answers. Run as a program, because an engine has its process to itself.
"""

from __future__ import annotations

import json
import os
import sys

from vllm import LLM, SamplingParams
from vllm.inputs import TokensPrompt

from outrider.vllm_ext.deferred_pass.policy import Deferred

PROMPTS = (
    "Write about the history of bread.",
    "Copy this list: " + ", ".join(f"item {i} costs {i * 7 % 50} euros" for i in range(16)) + ". Copy:",
    "Explain how a bicycle stays upright.",
)


def main(model: str, head: str, how: str, size: int) -> None:
    """Greedy answers, what was accepted of the drafts, and passes put off and made up for."""
    if how != "engine":
        os.environ["OUTRIDER_DEFERRED_PASS"] = "7"
    if how == "forgotten":
        Deferred.catch_up = Deferred.forget
    llm = LLM(
        model=model,
        dtype="float32",
        max_model_len=1024,
        max_num_seqs=8,
        enforce_eager=True,
        disable_log_stats=False,
        worker_extension_cls="outrider.vllm_ext.worker.WorkerExtension",
        speculative_config={
            "method": "eagle3",
            "model": head,
            "num_speculative_tokens": 3,
            "num_speculative_tokens_per_batch_size": [[1, 2, 3], [3, 8, 0]],
        },
    )
    tokens = [llm.get_tokenizer().encode(prompt) for prompt in PROMPTS]
    # Three requests at once are decoded at k = 0, two are drafted for: the first ends early.
    lengths = (5 + size // 4, size, size)
    sampling = [SamplingParams(temperature=0, max_tokens=length, ignore_eos=True) for length in lengths]
    outputs = llm.generate([TokensPrompt(prompt_token_ids=one) for one in tokens], sampling, use_tqdm=False)
    counters = {
        metric.name: metric.value
        for metric in llm.get_metrics()
        if metric.name in {"vllm:spec_decode_num_drafts", "vllm:spec_decode_num_accepted_tokens"}
    }
    result = {
        "answers": [list(output.outputs[0].token_ids) for output in outputs],
        "drafts": counters["vllm:spec_decode_num_drafts"],
        "accepted": counters["vllm:spec_decode_num_accepted_tokens"],
        "counts": [] if how == "engine" else llm.collective_rpc("deferred_pass_counts")[0],
    }
    print("RESULT " + json.dumps(result), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:4], int(sys.argv[4]))
