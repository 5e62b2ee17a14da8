"""Config facts of the shipped stacks' targets, for looking at a stack whose files are not at hand.

Each file says where its figures come from. Headers, tokenizers and templates are not in them, so findings
about those are not made, and FILE008 says so.
"""

from __future__ import annotations

import json
from importlib import resources

from outrider.preflight.reading import Checkpoint
from outrider.stack.schema import slug


def reference(model: str) -> Checkpoint | None:
    """The shipped shape of a repository, None if there is none."""
    file = resources.files(__name__) / f"{slug(model.replace('/', '--'))}.json"
    if not file.is_file():
        return None
    data = json.loads(file.read_text(encoding="utf-8"))
    return Checkpoint(
        label=f"reference of {model}",
        config=data["config"],
        generation_config=data["generation_config"],
        from_reference=True,
    )
