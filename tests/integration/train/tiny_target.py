"""A target of half a million parameters with its own tokenizer, made in seconds, that the real engine serves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from outrider.train.corpus import generate

if TYPE_CHECKING:
    from pathlib import Path

_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_SPECIAL = ["<|pad|>", "<|im_start|>", "<|im_end|>"]


def make_tokenizer(directory: Path, *, vocab_size: int = 320, seed: int = 0) -> PreTrainedTokenizerFast:
    """A byte-level BPE over the corpus."""
    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    texts = [text for prompt in generate(400, seed=seed) for _role, text in prompt.messages]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    raw.train_from_iterator(
        texts, trainers.BpeTrainer(vocab_size=vocab_size, special_tokens=_SPECIAL, initial_alphabet=alphabet)
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw, pad_token="<|pad|>", bos_token="<|im_start|>", eos_token="<|im_end|>"
    )
    tokenizer.chat_template = _TEMPLATE
    tokenizer.save_pretrained(directory)
    return tokenizer


def make_target(directory: Path, **geometry: Any) -> Path:
    """Random weights under a fixed seed, attention damped: the next token follows nearly from the last one.

    Such text is varied when sampled, and a head can learn it from a hundred short answers.
    """
    tokenizer = make_tokenizer(directory)
    torch.manual_seed(7)
    shape: dict[str, Any] = {
        "hidden_size": 128,
        "intermediate_size": 256,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "max_position_embeddings": 512,
        "vocab_size": len(tokenizer),
        "tie_word_embeddings": False,
        "initializer_range": 0.3,
        "eos_token_id": tokenizer.eos_token_id,
        "bos_token_id": tokenizer.bos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    model = LlamaForCausalLM(LlamaConfig(**{**shape, **geometry}))
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight *= 0.005
    model.to(torch.bfloat16).save_pretrained(directory)
    return directory
