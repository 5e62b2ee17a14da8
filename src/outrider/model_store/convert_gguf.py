"""GGUF to BF16 safetensors, run by the engine's interpreter, which has torch and transformers.

Not imported by Outrider: it is started by path, as `python convert_gguf.py JOB.json`, so that the engine's
environment needs no Outrider in it. JOB holds `gguf`, `out`, `eos_token`, `prompt`; the greedy answer to
`prompt` is printed as the last line, as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def convert(job: dict[str, str]) -> str:
    """Write config, tokenizer and safetensors to `job["out"]`; returns the greedy answer to the probe."""
    import torch  # noqa: PLC0415 - present only in the engine's environment
    from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: PLC0415

    gguf = Path(job["gguf"])
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    model = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.bfloat16)
    # The weights are plain tensors now; the GGUF mark would make every reader look for quantised ones.
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.hf_quantizer = None
    # GGUF metadata carries one end token, and the wrong one for chat.
    tokenizer.eos_token = job["eos_token"]
    for config in (model.config, model.generation_config):
        config.eos_token_id = tokenizer.convert_tokens_to_ids(job["eos_token"])
    model.config._name_or_path = ""  # noqa: SLF001 - a build label of the GGUF author, no path
    model.save_pretrained(job["out"])
    tokenizer.save_pretrained(job["out"])

    chat = [{"role": "user", "content": job["prompt"]}]
    ids = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    answer = model.generate(**ids, max_new_tokens=24, do_sample=False)[0, ids["input_ids"].shape[1] :]
    return str(tokenizer.decode(answer, skip_special_tokens=True))


if __name__ == "__main__":
    print(json.dumps({"answer": convert(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))}))
