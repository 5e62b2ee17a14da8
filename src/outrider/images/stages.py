"""Cuts a Dockerfile down to what one target needs.

Docker's older builder builds every stage above the target, needed or not, and so would ask for bases that a machine
does not have. Cutting the file first gives both builders the same work.
"""

from __future__ import annotations

import re

from outrider.images.wheels import ImageError

_FROM = re.compile(r"^FROM\s+(\S+)\s+AS\s+(\S+)\s*$", re.MULTILINE)
_COPY_FROM = re.compile(r"^COPY\s+--from=(\S+)", re.MULTILINE)


def stages(dockerfile: str) -> tuple[str, dict[str, str]]:
    """What stands before the first stage, and each stage's text by name, in order."""
    marks = list(_FROM.finditer(dockerfile))
    if not marks:
        return dockerfile, {}
    ends = [mark.start() for mark in marks[1:]] + [len(dockerfile)]
    return dockerfile[: marks[0].start()], {
        mark[2]: dockerfile[mark.start() : end] for mark, end in zip(marks, ends, strict=True)
    }


def only(dockerfile: str, target: str) -> str:
    """The Dockerfile with the target and the stages that it is made from, and no other.

    Raises:
        ImageError: there is no such stage.
    """
    head, by_name = stages(dockerfile)
    if target not in by_name:
        raise ImageError(f"the Dockerfile has no stage {target!r}", next_step=f"one of: {', '.join(by_name)}")
    needed: set[str] = set()
    waiting = [target]
    while waiting:
        name = waiting.pop()
        if name in by_name and name not in needed:
            needed.add(name)
            text = by_name[name]
            waiting += [_FROM.findall(text)[0][0], *_COPY_FROM.findall(text)]
    return head + "".join(text for name, text in by_name.items() if name in needed)
