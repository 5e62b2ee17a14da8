"""The tokenizer that dummy shapes are served with, as the engine's own library reads it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from outrider.predict.byte_tokenizer import byte_tokenizer

SIZE = 600
FILES = byte_tokenizer(SIZE)
TOKENIZER = Tokenizer.from_str(FILES["tokenizer.json"])


@given(st.text())
def test_a_prompt_is_as_many_tokens_as_bytes_and_comes_back(text: str) -> None:
    ids = TOKENIZER.encode(text).ids
    assert ids.count(SIZE - 1) == text.count("<|end|>")
    if "<|end|>" not in text:
        assert len(ids) == len(text.encode())
        assert TOKENIZER.decode(ids) == text


def test_whatever_the_model_emits_is_text_of_its_own() -> None:
    assert TOKENIZER.get_vocab_size() == SIZE
    texts = [TOKENIZER.decode([number]) for number in range(256, SIZE - 1)]
    assert all(texts)
    assert len(set(texts)) == len(texts)


def test_the_last_token_ends_an_answer() -> None:
    assert json.loads(FILES["tokenizer_config.json"])["eos_token"] == TOKENIZER.id_to_token(SIZE - 1)


def test_a_vocabulary_must_hold_the_bytes() -> None:
    with pytest.raises(ValueError, match="no room"):
        byte_tokenizer(256)
