"""A tokenizer for a model that does not read: a byte is a token, and every other token has a text of its own.

An engine that serves dummy weights over its API needs one. Prompts become as many tokens as they have bytes, and
whatever the model emits is text, so that a client sees each token arrive.
"""

from __future__ import annotations

import json

_BYTES = 256
_END = "<|end|>"


def byte_tokenizer(vocabulary: int) -> dict[str, str]:
    """Files of the tokenizer by name.

    Args:
        vocabulary: tokens; ids 0 to 255 are the bytes, the last one ends an answer.

    Raises:
        ValueError: the vocabulary has no room for the bytes.
    """
    if vocabulary <= _BYTES:
        raise ValueError(f"a vocabulary of {vocabulary} has no room for {_BYTES} bytes and an end")
    names = [*_byte_letters(), *(f"Ġ{number}" for number in range(_BYTES, vocabulary - 1)), _END]
    model: dict[str, object] = {
        "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
        "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
        "vocab": {name: number for number, name in enumerate(names)}, "merges": [],
    }  # fmt: skip
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    end = {
        "id": vocabulary - 1, "content": _END, "single_word": False, "lstrip": False, "rstrip": False,
        "normalized": False, "special": True,
    }  # fmt: skip
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [end], "normalizer": None,
        "pre_tokenizer": byte_level, "post_processor": None, "decoder": byte_level, "model": model,
    }  # fmt: skip
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": _END,
        "clean_up_tokenization_spaces": False,
        "chat_template": "{% for message in messages %}{{ message['content'] }}{% endfor %}",
    }
    return {
        "tokenizer.json": json.dumps(tokenizer, ensure_ascii=False, separators=(",", ":")),
        "tokenizer_config.json": json.dumps(settings, indent=1),
    }


def _byte_letters() -> list[str]:
    """The printable letter that byte-level BPE writes for each byte, as in GPT-2's encoder."""
    printable = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    others = iter(range(_BYTES, 2 * _BYTES))
    return [chr(byte if byte in printable else next(others)) for byte in range(_BYTES)]
