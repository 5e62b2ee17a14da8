"""What greedy verification would accept of drafts that were made along a text that is already there."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def accepted(proposed: Sequence[Sequence[int]], ids: Sequence[int], answer: Sequence[bool]) -> list[tuple[int, int]]:
    """Count accepted drafts by step.

    Args:
        proposed: k rows of n tokens; `proposed[s][j]` was drafted from position j for position j+s+1.
        ids: n tokens that the target wrote.
        answer: n marks of the tokens that belong to its answer.

    Returns:
        For each step, how often the proposal is the token that came, and how often that was tried: the steps before
        were right and a token of the answer came. A draft past the end of the answer is neither right nor wrong.
    """
    alive = [j for j, inside in enumerate(answer) if inside]
    found: list[tuple[int, int]] = []
    for step, tokens in enumerate(proposed):
        tried = [j for j in alive if j + step + 1 < len(ids) and answer[j + step + 1]]
        alive = [j for j in tried if tokens[j] == ids[j + step + 1]]
        found.append((len(alive), len(tried)))
    return found
