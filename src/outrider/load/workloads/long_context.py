"""The `long-<n>k` workloads: prompts of about n x 1024 tokens.

A prompt is a logbook put together from the phrases in `sets/long.yaml`, one entry of which states a code;
the question for that code comes last. The text is drawn afresh for each seed, so a new seed means prompts
that no prefix cache has seen. Every opening differs by its volume number, and no two entries in a row
share a form.
"""

from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING, Any

from outrider.load.workloads.prompt import Prompt, user

if TYPE_CHECKING:
    from collections.abc import Iterator

NAME = re.compile(r"long-([1-9]\d{0,2})k")
LISTED = ("long-1k", "long-4k", "long-16k", "long-32k", "long-64k", "long-128k")
TOKENS_PER_WORD = 1.43
"""Of this text, tokens for each whitespace-separated word, measured with the SmolLM2 tokenizer (49k
vocabulary). Other tokenizers differ by some percent: the length in the name is approximate."""


def target_tokens(name: str) -> int | None:
    """Tokens that a `long-...` name asks for; None if it is no such name."""
    match = NAME.fullmatch(name)
    return int(match.group(1)) * 1024 if match else None


def long_prompts(name: str, data: dict[str, Any], tokens: int, *, seed: int, count: int) -> Iterator[Prompt]:
    """`count` prompts of about `tokens` tokens each; prompt i does not depend on `count`."""
    for index in range(count):
        draw = random.Random(f"{name}/{data['version']}/{seed}/{index}")  # noqa: S311 - text, not secrets
        yield Prompt(
            id=f"{name}/s{seed}-{index + 1:03d}",
            category=name,
            messages=(user(_document(data, draw, volume=index + 1, words=round(tokens / TOKENS_PER_WORD))),),
            max_tokens=data["max_tokens"],
        )


def _document(data: dict[str, Any], draw: random.Random, *, volume: int, words: int) -> str:
    needle_facts = {
        "colour": draw.choice(data["colours"]),
        "thing": draw.choice(data["thing"]),
        "place": draw.choice(data["place"]),
        "code": str(draw.randint(1000, 9999)),
    }
    needle, question = data["needle"].format(**needle_facts), data["question"].format(**needle_facts)
    sentences = [draw.choice(data["openings"]).format(volume=volume, **_facts(data, draw))]
    left = words - sum(len(text.split()) for text in (needle, question, sentences[0]))
    form = ""
    while left > 0:
        form = draw.choice([other for other in data["entries"] if other != form])
        sentences.append(form.format(**_facts(data, draw)))
        left -= len(sentences[-1].split())
    sentences.insert(draw.randint(1, len(sentences)), needle)
    return f"{_paragraphs(sentences, draw)}\n\n{question}"


def _facts(data: dict[str, Any], draw: random.Random) -> dict[str, str]:
    """One value for every slot that a phrase can have."""
    who, other = draw.sample(data["who"], 2)
    picked = {slot: draw.choice(data[slot]) for slot in ("place", "thing", "things", "weather", "weather_start", "day")}
    return picked | {
        "who": who,
        "other": other,
        "number": str(draw.randint(13, 980)),
        "few": str(draw.randint(2, 12)),
        "time": f"{draw.randint(5, 22)}:{draw.randrange(0, 60, 5):02d}",
    }


def _paragraphs(sentences: list[str], draw: random.Random) -> str:
    """Join sentences into paragraphs of three to eight; the opening stands alone."""
    parts, rest = [sentences[0]], sentences[1:]
    while rest:
        size = draw.randint(3, 8)
        parts.append(" ".join(rest[:size]))
        rest = rest[size:]
    return "\n\n".join(parts)
