"""Prompt sets that are written out in `sets/*.yaml`.

A file holds `version`, `description`, `max_tokens` and `prompts`: a mapping from category to a list whose
items are either one string or `ask` with `text`, the material that the answer works on.
"""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING, Any

import yaml

from outrider.load.workloads.prompt import Prompt, user

if TYPE_CHECKING:
    from collections.abc import Iterator

SETS = ("chat", "code", "edit", "extraction", "json", "reasoning")


def read_set(name: str) -> dict[str, Any]:
    """Parse the package's own `sets/<name>.yaml`."""
    source = resources.files(__package__ or __name__).joinpath("sets", f"{name}.yaml")
    data: dict[str, Any] = yaml.safe_load(source.read_text(encoding="utf-8"))
    return data


def written_prompts(name: str, data: dict[str, Any]) -> Iterator[Prompt]:
    """Prompts of a set in file order; ids are `<set>/<category>-<position in category>`."""
    for category, items in data["prompts"].items():
        for position, item in enumerate(items, start=1):
            content = item if isinstance(item, str) else f"{item['ask']}\n\n{item['text']}"
            yield Prompt(
                id=f"{name}/{category}-{position:02d}",
                category=category,
                messages=(user(content.strip()),),
                max_tokens=data["max_tokens"],
            )
