"""What Outrider puts into vLLM's workers, and how: plugins that do nothing unless their variable is set.

Importing the class named by `--worker-extension-cls` registers them, so an engine whose interpreter does not have
Outrider fails at start; by the plugins' entry points alone it would serve without them, and say nothing.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from outrider.vllm_ext.deferred_pass.plugin import METHODS, STEPS, VARIABLE

if TYPE_CHECKING:
    from outrider.stack.schema import Speculation, Variant

EXTENSION = "outrider.vllm_ext.worker.WorkerExtension"
# Opens the endpoint by which workers can be asked for what the class offers; for measurements on loopback only.
ASKABLE = {"VLLM_SERVER_DEV_MODE": "1"}


def flags(variant: Variant) -> list[str]:
    """The class, where a variant needs something of it."""
    needed = variant.expert_budget is not None or _defers(variant.speculation) or _askable(variant)
    return ["--worker-extension-cls", EXTENSION] if needed else []


def environment(variant: Variant, build: str) -> dict[str, str]:
    """Passes of the drafter are put off where k may be 0, as many as pays on the engine's build (`cpu`, `cuda`)."""
    if _defers(variant.speculation):
        return {VARIABLE: str(STEPS[build])} | importable()
    return importable() if _askable(variant) else {}


def importable() -> dict[str, str]:
    """What lets another interpreter's engine import Outrider from a checkout; nothing where it is installed."""
    sources = Path(__file__).resolve().parents[2]
    if os.environ.get("OUTRIDER_ENGINE_PYTHON") and sources.name == "src":
        return {"PYTHONPATH": str(sources)}
    return {}


def _askable(variant: Variant) -> bool:
    return ASKABLE.items() <= variant.env.items()


def _defers(spec: Speculation | None) -> bool:
    """Whether k may be 0 while a drafter has a cache to keep in step."""
    if spec is None or spec.method not in METHODS:
        return False
    return spec.auto or any(k == 0 for _, _, k in spec.schedule or ())
