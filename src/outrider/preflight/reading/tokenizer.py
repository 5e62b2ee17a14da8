"""Tokenizer files: what identifies a vocabulary, read without any tokenizer library."""

from __future__ import annotations

import base64
import binascii
import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass(frozen=True, slots=True)
class TokenizerFacts:
    """Identity of a tokenizer.

    Attributes:
        kind: `tokenizer.json`, `tiktoken` or `sentencepiece`.
        vocabulary_hash: SHA-256 over tokens with ids and merges, added tokens left out; None where the
            format is not read (sentencepiece).
        size: highest id + 1, added tokens included; 0 if unknown.
        added: added token -> id.
        special: `eos_token`, `bos_token`, `pad_token`, `unk_token` -> text.
        eos_id: id of the eos token, None if its text has no id here.
        fault: why it would not load, None if nothing speaks against it.
    """

    kind: str
    vocabulary_hash: str | None = None
    size: int = 0
    added: Mapping[str, int] = field(default_factory=dict)
    special: Mapping[str, str] = field(default_factory=dict)
    eos_id: int | None = None
    fault: str | None = None


def facts_from_json(raw: bytes, tokenizer_config: Mapping[str, Any]) -> TokenizerFacts:
    """Facts of a `tokenizer.json`; a malformed one has `fault` set."""
    try:
        data = orjson.loads(raw)
        model = data["model"]
        vocabulary = _vocabulary(model["vocab"])
        merges = [" ".join(m) if isinstance(m, list) else str(m) for m in model.get("merges") or ()]
        added = {str(item["content"]): int(item["id"]) for item in data.get("added_tokens") or ()}
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
        return TokenizerFacts("tokenizer.json", fault=f"{type(error).__name__}: {error}")
    return _facts("tokenizer.json", vocabulary, merges, added, tokenizer_config)


def facts_from_tiktoken(raw: bytes, tokenizer_config: Mapping[str, Any]) -> TokenizerFacts:
    """Facts of a tiktoken file: lines of base64 token and rank."""
    vocabulary: dict[str, int] = {}
    for number, line in enumerate(raw.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            token, rank = line.split()
            base64.b64decode(token, validate=True)
            vocabulary[token.decode("ascii")] = int(rank)
        except (ValueError, binascii.Error, UnicodeDecodeError) as error:
            return TokenizerFacts("tiktoken", fault=f"line {number}: {error}")
    return _facts("tiktoken", vocabulary, (), _added_by_config(tokenizer_config), tokenizer_config)


def _facts(
    kind: str,
    vocabulary: Mapping[str, int],
    merges: Iterable[str],
    added: Mapping[str, int],
    tokenizer_config: Mapping[str, Any],
) -> TokenizerFacts:
    if not vocabulary:
        return TokenizerFacts(kind, fault="the vocabulary is empty")
    doubled = len(vocabulary) - len(set(vocabulary.values()))
    special = _special(tokenizer_config)
    ids = {**vocabulary, **_added_by_config(tokenizer_config), **added}
    return TokenizerFacts(
        kind,
        vocabulary_hash=_digest(vocabulary, merges, set(added)),
        size=max(ids.values()) + 1,
        added=dict(added),
        special=special,
        eos_id=ids.get(special.get("eos_token", "")),
        fault=f"{doubled} ids stand for two tokens" if doubled else None,
    )


def _vocabulary(vocab: Any) -> dict[str, int]:
    if isinstance(vocab, dict):
        return {str(token): int(number) for token, number in vocab.items()}
    # Unigram models list [token, score] pairs; the place is the id.
    return {str(pair[0]): number for number, pair in enumerate(vocab)}


def _digest(vocabulary: Mapping[str, int], merges: Iterable[str], added: set[str]) -> str:
    digest = hashlib.sha256()
    for token, number in sorted(vocabulary.items(), key=lambda item: item[1]):
        if token not in added:
            digest.update(f"{number}\0{token}\n".encode("utf-8", "surrogatepass"))
    for merge in merges:
        digest.update(f"{merge}\n".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def _special(tokenizer_config: Mapping[str, Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in ("eos_token", "bos_token", "pad_token", "unk_token"):
        value = tokenizer_config.get(name)
        text = value.get("content") if isinstance(value, dict) else value
        if isinstance(text, str):
            found[name] = text
    return found


def _added_by_config(tokenizer_config: Mapping[str, Any]) -> dict[str, int]:
    added = tokenizer_config.get("added_tokens_decoder")
    if not isinstance(added, dict):
        return {}
    return {
        str(facts.get("content")): int(number)
        for number, facts in added.items()
        if isinstance(facts, dict) and str(number).isdigit()
    }
