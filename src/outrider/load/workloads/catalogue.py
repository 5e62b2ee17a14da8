"""Workloads by name."""

from __future__ import annotations

import difflib

from outrider.errors import LoadError
from outrider.load.workloads.conversations import conversation_prompts
from outrider.load.workloads.long_context import LISTED, long_prompts, target_tokens
from outrider.load.workloads.prompt import Workload, assemble, check_count, digest_of
from outrider.load.workloads.random_text import COUNT as RANDOM_COUNT
from outrider.load.workloads.random_text import LISTED as RANDOM_LISTED
from outrider.load.workloads.random_text import VERSION as RANDOM_VERSION
from outrider.load.workloads.random_text import characters, random_prompts
from outrider.load.workloads.written import SETS, read_set, written_prompts

MOST_LONG_PROMPTS = 4096


def workload_names() -> tuple[str, ...]:
    """The names that `load_workload` takes; other lengths of `long-<n>k` and `random-<n>` work too."""
    return (*sorted((*SETS, "multiturn")), *LISTED, *RANDOM_LISTED)


def is_workload(name: str) -> bool:
    """Whether `load_workload` takes this name, without building anything; also true of unlisted lengths."""
    return name in workload_names() or target_tokens(name) is not None or characters(name) is not None


def prompt_length(name: str) -> int | None:
    """Tokens (`long-<n>k`) or characters (`random-<n>`) of each prompt, where the name says so; else None."""
    return target_tokens(name) or characters(name)


def load_workload(name: str, *, seed: int = 0, count: int | None = None) -> Workload:
    """Build one of Outrider's own workloads.

    Args:
        name: one of `workload_names()`.
        seed: decides the order and every drawn parameter; same seed, same workload, byte for byte.
        count: how many prompts; None for the whole set. A smaller count is a prefix of a larger one.

    Raises:
        LoadError: unknown name, or more prompts asked than the set has.
    """
    tokens = target_tokens(name)
    if tokens is not None:
        return _long(name, tokens, seed=seed, count=count)
    length = characters(name)
    if length is not None:
        return _random(name, length, seed=seed, count=count)
    if name in SETS or name == "multiturn":
        data = read_set(name)
        prompts = conversation_prompts(data) if name == "multiturn" else written_prompts(name, data)
        return assemble(name, data["version"], data["description"], prompts, seed=seed, count=count)
    close = difflib.get_close_matches(name, workload_names(), n=1)
    raise LoadError(
        f"there is no workload {name!r}",
        evidence=f"known: {', '.join(workload_names())}",
        next_step=f"did you mean {close[0]!r}?" if close else "take one of these, or load a file of prompts",
    )


def _long(name: str, tokens: int, *, seed: int, count: int | None) -> Workload:
    """Long prompts are drawn, not stored, so `count` may exceed the usual 64."""
    data = read_set("long")
    check_count(name, count, MOST_LONG_PROMPTS)
    prompts = tuple(long_prompts(name, data, tokens, seed=seed, count=count or data["prompts"]))
    return Workload(
        name, data["version"], digest_of(prompts), data["description"].format(tokens=f"{tokens:,}"), prompts
    )


def _random(name: str, length: int, *, seed: int, count: int | None) -> Workload:
    check_count(name, count, MOST_LONG_PROMPTS)
    prompts = tuple(random_prompts(name, length, seed=seed, count=count or RANDOM_COUNT))
    return Workload(name, RANDOM_VERSION, digest_of(prompts), f"{length} random letters and blanks", prompts)
