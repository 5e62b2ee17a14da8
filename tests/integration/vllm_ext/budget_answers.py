"""Answers of a tiny model on the CPU engine, as JSON: `python budget_answers.py MODEL eager|compiled COMMAND...`.

Run as a program, because an engine has its process to itself.
"""

from __future__ import annotations

import json
import os
import sys

from vllm import LLM, SamplingParams


def main(model: str, mode: str) -> None:
    """Greedy answers to six prompts at once, with the log probability of each token."""
    budgeted = "OUTRIDER_EXPERT_BUDGET" in os.environ
    llm = LLM(
        model=model,
        skip_tokenizer_init=True,
        dtype="float32",
        max_model_len=256,
        max_num_seqs=8,
        enforce_eager=mode == "eager",
        worker_extension_cls="outrider.vllm_ext.worker.WorkerExtension" if budgeted else "",
    )
    prompts = [{"prompt_token_ids": [(7 * i + 3 * j) % 500 for j in range(10 + i)]} for i in range(6)]
    sampling = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True, logprobs=1, detokenize=False)
    answers = [
        [
            [token, at[token].logprob]
            for token, at in zip(out.outputs[0].token_ids, out.outputs[0].logprobs, strict=True)
        ]
        for out in llm.generate(prompts, sampling, use_tqdm=False)
    ]
    counts = llm.collective_rpc("expert_budget_counts")[0] if budgeted else []
    print("RESULT " + json.dumps({"answers": answers, "counts": counts}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:3])
