"""The `random-<n>` workloads: prompts of n random letters and blanks, for models that do not read.

A step of dummy weights costs the same whatever is asked; but in a model of experts equal prompts would meet the same
experts. The text is drawn afresh for each seed.
"""

from __future__ import annotations

import random
import re
import string
from typing import TYPE_CHECKING

from outrider.load.workloads.prompt import Prompt, user

if TYPE_CHECKING:
    from collections.abc import Iterator

NAME = re.compile(r"random-([1-9]\d{0,4})")
LISTED = ("random-64",)
VERSION = 1
COUNT = 1024
_CHARACTERS = string.ascii_lowercase + " "


def characters(name: str) -> int | None:
    """Characters that a `random-...` name asks for; None if it is no such name."""
    match = NAME.fullmatch(name)
    return int(match.group(1)) if match else None


def random_prompts(name: str, length: int, *, seed: int, count: int) -> Iterator[Prompt]:
    """`count` prompts of `length` characters, which are as many tokens where a token is a byte.

    Prompt i does not depend on `count`.
    """
    for index in range(count):
        draw = random.Random(f"{name}/{VERSION}/{seed}/{index}")  # noqa: S311 - text, not secrets
        inner = "".join(draw.choices(_CHARACTERS, k=max(length - 2, 0)))
        ends = draw.choices(string.ascii_lowercase, k=2)
        text = f"{ends[0]}{inner}{ends[1]}" if length > 1 else ends[0]
        yield Prompt(id=f"{name}/s{seed}-{index + 1:04d}", category=name, messages=(user(text),), max_tokens=512)
