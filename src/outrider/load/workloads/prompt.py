"""What a workload is: an ordered, versioned, hashed tuple of prompts."""

from __future__ import annotations

import hashlib
import json
import random
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal, TypedDict

from outrider.errors import LoadError

if TYPE_CHECKING:
    from collections.abc import Iterable

Role = Literal["system", "user", "assistant"]


class Message(TypedDict):
    """One chat message in the OpenAI form."""

    role: Role
    content: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """One request.

    Attributes:
        id: stable over seeds and versions of Outrider; unique in its workload. Paired statistics join on it.
        category: what kind of request it is within its workload.
        messages: the conversation to send; ends with a user message.
        max_tokens: suggested limit of output tokens; None leaves it to the caller.
        turns: further user turns for a client that plays a conversation with the model's own answers in
            between; empty where `messages` already holds everything.
    """

    id: str
    category: str
    messages: tuple[Message, ...]
    max_tokens: int | None = None
    turns: tuple[str, ...] = ()

    @property
    def words(self) -> int:
        """Whitespace-separated words in all messages."""
        return sum(len(message["content"].split()) for message in self.messages)


@dataclass(frozen=True, slots=True)
class Workload:
    """A named set of prompts, in the order in which they are to be sent.

    Attributes:
        name: what `load_workload` was asked for, or the file's stem.
        version: raised whenever a prompt of the set changes; figures of two versions are not comparable.
        digest: sha256 (hex) over the prompts in the order of their ids, so it identifies *what* is sent
            whatever the order; the order follows from the seed.
        description: one sentence.
        prompts: at least one.
    """

    name: str
    version: int
    digest: str
    description: str
    prompts: tuple[Prompt, ...]

    def __len__(self) -> int:
        return len(self.prompts)


def user(content: str) -> Message:
    """A user message."""
    return {"role": "user", "content": content}


def assistant(content: str) -> Message:
    """An assistant message."""
    return {"role": "assistant", "content": content}


def digest_of(prompts: Iterable[Prompt]) -> str:
    """sha256 (hex) of the prompts' canonical JSON, independent of their order."""
    sha = hashlib.sha256()
    for prompt in sorted(prompts, key=lambda p: p.id):
        sha.update(json.dumps(asdict(prompt), sort_keys=True, ensure_ascii=False).encode())
        sha.update(b"\n")
    return sha.hexdigest()


def assemble(
    name: str, version: int, description: str, prompts: Iterable[Prompt], *, seed: int, count: int | None
) -> Workload:
    """Shuffle by seed, take the first `count`, hash.

    The shuffle comes before the cut, so a smaller `count` with the same seed is a prefix of a larger one.

    Raises:
        LoadError: `count` is not in 1..len(prompts). A set is never padded with repeats: a repeated prompt
            would be answered from the prefix cache and make the cell look faster than it is.
    """
    pool = sorted(prompts, key=lambda p: p.id)
    check_count(name, count, len(pool))
    random.Random(f"{name}/{version}/{seed}").shuffle(pool)  # noqa: S311 - order, not secrets
    chosen = tuple(pool[:count])
    return Workload(name, version, digest_of(chosen), description, chosen)


def check_count(name: str, count: int | None, available: int) -> None:
    """Refuse a `count` outside 1..available (None is the whole set)."""
    if count is not None and not 1 <= count <= available:
        raise LoadError(
            f"workload {name!r} cannot give {count} prompts",
            evidence=f"it has {available} distinct prompts",
            next_step=f"ask for 1 to {available}, or leave count out and cycle over the set",
        )
