"""The task set of `outrider parity`: short questions whose answers a program can check."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal

import yaml

Check = Literal["word", "number", "choice", "json"]
_NUMBER = re.compile(r"-?\d+(?:,\d{3})*(?:\.\d+)?")


@dataclass(frozen=True, slots=True)
class Task:
    """One item.

    Attributes:
        id: `<kind>-<position>`, stable within a version of the set.
        kind: what it asks for: `copy`, `arithmetic`, `json`, ...
        ask: the user message.
        check: how the text is compared; see the head of `parity_tasks.yaml`.
        accepted: texts that count as right; for `json` the one document.
        choices: what `choice` looks for.
    """

    id: str
    kind: str
    ask: str
    check: Check
    accepted: tuple[Any, ...]
    choices: tuple[str, ...] = ()

    def solved_by(self, text: str) -> bool:
        """Whether a model's text answers the task."""
        match self.check:
            case "word":
                return any(_holds(text, answer) for answer in self.accepted)
            case "number":
                numbers = [found.replace(",", "") for found in _NUMBER.findall(text)]
                return bool(numbers) and float(numbers[-1]) == float(self.accepted[0])
            case "choice":
                return self._first_choice(text) in self.accepted
            case "json":
                return _same(_first_object(text), self.accepted[0])

    def _first_choice(self, text: str) -> str | None:
        found = re.search(rf"\b({'|'.join(map(re.escape, self.choices))})\b", text, re.IGNORECASE)
        return found.group(1).lower() if found else None


@cache
def load_tasks() -> tuple[Task, ...]:
    """The whole set, in file order."""
    data = yaml.safe_load(resources.files("outrider.campaign").joinpath("parity_tasks.yaml").read_text("utf-8"))
    return tuple(
        Task(
            id=f"{kind}-{position:02d}",
            kind=kind,
            ask=ask,
            check=group["check"],
            accepted=tuple(answer) if isinstance(answer, list) else (answer,),
            choices=tuple(group.get("choices", ())),
        )
        for kind, group in data["kinds"].items()
        for position, (ask, answer) in enumerate(group["items"], start=1)
    )


def _holds(text: str, answer: str) -> bool:
    """The answer as a whole word or phrase, in any case and spacing."""
    phrase = r"\s+".join(re.escape(word) for word in answer.split())
    return re.search(rf"(?<!\w){phrase}(?!\w)", text, re.IGNORECASE) is not None


def _first_object(text: str) -> object:
    """The first text between braces that parses as a JSON object; None without one."""
    decoder = json.JSONDecoder()
    for start in (found.start() for found in re.finditer(r"\{", text)):
        try:
            value, _ = decoder.raw_decode(text, start)
        except json.JSONDecodeError:
            continue
        return value
    return None


def _same(found: object, wanted: object) -> bool:
    """Equal as JSON: `true` is not 1, and 31 is not "31"."""
    return json.dumps(found, sort_keys=True) == json.dumps(wanted, sort_keys=True)
