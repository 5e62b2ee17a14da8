"""The `multiturn` workload: conversations with given answers.

`sets/multiturn.yaml` holds topics of four exchanges that can be read in any order. Each exchange opens one
conversation, which then walks on through its topic; so no two conversations share their first user message
and no one is a prefix of another: a prefix cache cannot help one prompt more than the next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from outrider.load.workloads.prompt import Message, Prompt, assistant, user

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def conversation_prompts(data: dict[str, Any]) -> Iterator[Prompt]:
    """One prompt for each exchange of each topic; the category names the number of user turns."""
    for topic_no, (topic, exchanges) in enumerate(data["topics"].items()):
        for start in range(len(exchanges)):
            answered = 1 + (topic_no + start) % (len(exchanges) - 1)
            yield Prompt(
                id=f"multiturn/{topic}-{start + 1}",
                category=f"{answered + 1}-turns",
                messages=_conversation(exchanges, start, answered),
                max_tokens=data["max_tokens"],
            )


def _conversation(exchanges: Sequence[dict[str, str]], start: int, answered: int) -> tuple[Message, ...]:
    """`answered` exchanges from `start` on, round the ring, then the next question without its answer."""
    ring = [exchanges[(start + step) % len(exchanges)] for step in range(answered + 1)]
    messages: list[Message] = []
    for exchange in ring[:-1]:
        messages += [user(exchange["ask"]), assistant(exchange["answer"])]
    return (*messages, user(ring[-1]["ask"]))
