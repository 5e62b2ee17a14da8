"""Draws distinct prompts from families of templates.

A family is a list of templates, the word lists of its slots and, where requests carry material, the name of a
composer in `materials`. Families of split `check` share no template with those of split `train`, so acceptance
measured on them is not remembered text.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, Literal

import yaml

from outrider.train.corpus.materials import MATERIALS
from outrider.train.errors import TrainError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

Split = Literal["train", "check"]
_SLOT = re.compile(r"\{(\w+)\}")
# Draws of one family that yield nothing new before it counts as exhausted.
_PATIENCE = 200


@dataclass(frozen=True, slots=True)
class CorpusPrompt:
    """One conversation to be answered by the target.

    Attributes:
        id: hash of the conversation; equal prompts have equal ids.
        family: the family that it was drawn from.
        category: `chat`, `code`, `extraction` or `reasoning`.
        messages: system and user turns in order; the target's answers come between them.
    """

    id: str
    family: str
    category: str
    messages: tuple[tuple[str, str], ...]

    def as_row(self) -> dict[str, Any]:
        """The row form that `speculators regenerate-responses` reads."""
        return {
            "id": self.id,
            "family": self.family,
            "category": self.category,
            "messages": [{"role": role, "content": text} for role, text in self.messages],
        }


@cache
def families(split: Split) -> Mapping[str, Mapping[str, Any]]:
    """All families of a split, by name."""
    found: dict[str, Mapping[str, Any]] = {}
    directory = resources.files("outrider.train.corpus").joinpath("families")
    for entry in sorted(directory.iterdir(), key=lambda e: e.name):
        if entry.name.endswith(".yaml"):
            loaded: dict[str, Mapping[str, Any]] = yaml.safe_load(entry.read_text(encoding="utf-8"))
            found |= {name: family for name, family in loaded.items() if family["split"] == split}
    return found


def corpus_digest() -> str:
    """Sixteen hex digits over everything that decides which prompts are drawn: families, materials, this module."""
    package = resources.files("outrider.train.corpus")
    sha = hashlib.sha256()
    sources = [package.joinpath("draw.py"), package.joinpath("materials.py")]
    for entry in [*sources, *sorted(package.joinpath("families").iterdir(), key=lambda e: e.name)]:
        if entry.name.endswith((".py", ".yaml")):
            sha.update(entry.name.encode() + b"\0" + entry.read_bytes())
    return sha.hexdigest()[:16]


def _fill(template: str, family: Mapping[str, Any], rng: random.Random) -> str:
    def value(match: re.Match[str]) -> str:
        slot = match.group(1)
        if slot == "material":
            return MATERIALS[family["material"]](rng)
        return str(rng.choice(family["slots"][slot]))

    text = _SLOT.sub(value, template)
    return text[0].upper() + text[1:] if text[0].isalpha() else text


def _draw(name: str, family: Mapping[str, Any], rng: random.Random) -> CorpusPrompt:
    messages: list[tuple[str, str]] = []
    if "system" in family:
        messages.append(("system", rng.choice(family["system"])))
    messages.append(("user", _fill(rng.choice(family["templates"]), family, rng)))
    if "turns" in family:
        messages += [("user", turn) for turn in rng.sample(family["turns"], rng.randint(1, 2))]
    digest = hashlib.sha256(json.dumps(messages, ensure_ascii=False).encode()).hexdigest()
    return CorpusPrompt(digest[:16], name, family["category"], tuple(messages))


def generate(count: int, *, split: Split = "train", seed: int = 0) -> list[CorpusPrompt]:
    """Draw `count` distinct prompts; same arguments, same prompts, byte for byte.

    Families appear by their weights until they are exhausted. A smaller count with the same seed is a prefix of
    a larger one.

    Raises:
        TrainError: the families cannot give so many distinct prompts.
    """
    pool = dict(families(split))
    rng = random.Random(f"outrider/{split}/{seed}")  # noqa: S311 - draws prompts, no secrets
    seen: set[str] = set()
    chosen: list[CorpusPrompt] = []
    while len(chosen) < count and pool:
        name = rng.choices(list(pool), weights=[family["weight"] for family in pool.values()])[0]
        for _ in range(_PATIENCE):
            prompt = _draw(name, pool[name], rng)
            if prompt.id not in seen:
                seen.add(prompt.id)
                chosen.append(prompt)
                break
        else:
            del pool[name]
    if len(chosen) < count:
        raise TrainError(
            f"the corpus cannot give {count} distinct prompts",
            evidence=f"its {split} families yield {len(chosen)}",
            next_step="ask for fewer samples, or add templates or words to train/corpus/families/",
        )
    return chosen


def write_jsonl(prompts: Iterable[CorpusPrompt], path: Path) -> None:
    """Write prompts as JSON lines, through a neighbour file so that no reader sees half of it."""
    partial = path.with_name(path.name + ".partial")
    with partial.open("w", encoding="utf-8") as file:
        for prompt in prompts:
            file.write(json.dumps(prompt.as_row(), ensure_ascii=False) + "\n")
    partial.replace(path)
