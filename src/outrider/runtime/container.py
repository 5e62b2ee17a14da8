"""A variant as it runs inside a container: the same launch, with a container's paths and interpreter.

What the committed Compose files hold must not depend on the machine that rendered them, so that nothing here looks
at the host: directories are named by Compose variables that have the names of Outrider's own.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from outrider.engine import adapter_of
from outrider.engine.sglang import sglang_python
from outrider.engine.vllm import engine_python

if TYPE_CHECKING:
    from collections.abc import Mapping

    from outrider.engine import Launch
    from outrider.stack import Drafter, Stack, Target

PORT = 8000  # inside; the port outside is the runtime's choice
TARGET_DIR = Path("/models/target")
DRAFTER_DIR = Path("/models/drafter")
CACHE_DIR = Path("/var/cache/outrider")
_VARIABLE = re.compile(r"\$\{(\w+):-([^}]*)\}")
_HOST_ONLY = ("LD_PRELOAD", "PYTHONPATH")  # paths of the host; the image's entrypoint sets its own


@dataclass(frozen=True, slots=True)
class Mount:
    """A directory of the host that the engine reads.

    Attributes:
        source: path on the host, with Compose variables.
        target: path in the container.
    """

    source: str
    target: str


def container_launch(stack: Stack, variant: str) -> Launch:
    """How to start a variant inside its container."""
    spec = stack.variant(variant).speculation
    launch = adapter_of(stack, variant).launch(
        stack,
        variant,
        host="0.0.0.0",  # noqa: S104 - inside the container; what is published is loopback
        port=PORT,
        model_dir=TARGET_DIR,
        drafter_dir=DRAFTER_DIR if spec and spec.drafter else None,
    )
    argv = tuple("python3" if word in {engine_python(), sglang_python()} else word for word in launch.argv)
    env = {k: v for k, v in launch.env.items() if k not in _HOST_ONLY}
    if foreign_image(stack, variant):
        env |= {"HOME": str(CACHE_DIR)}  # the root is read-only, and compile caches go below the home directory
    return replace(launch, argv=argv, env=env)


def foreign_image(stack: Stack, variant: str) -> str | None:
    """The engine's own image, for an engine that Outrider builds none of; None if it does."""
    engine = stack.engine_of(variant)
    return f"lmsysorg/sglang:v{engine.version}" if engine.name == "sglang" else None


def mounts(stack: Stack, variant: str) -> tuple[Mount, ...]:
    """The model directories of a variant."""
    spec = stack.variant(variant).speculation
    found = [Mount(target_source(stack.target), str(TARGET_DIR))]
    if spec and spec.drafter:
        found.append(Mount(drafter_source(spec.drafter), str(DRAFTER_DIR)))
    return tuple(found)


def target_source(target: Target) -> str:
    """Where the target lies on the host: made by `outrider fetch`, else in the store of checkpoints."""
    if target.source is not None:
        digest = target.source.converted_sha256[:12]
        return f"${{OUTRIDER_CACHE:-$HOME/.cache/outrider}}/models/{target.served_name}-{digest}"
    return f"${{OUTRIDER_MODELS:-/srv/models}}/{target.model}"


def drafter_source(drafter: Drafter) -> str:
    """Where a drafter lies on the host: in the project, else in the store of checkpoints."""
    if drafter.model.startswith("/"):
        return drafter.model
    if drafter.is_local:
        return f"${{OUTRIDER_PROJECT:-..}}/{drafter.model.removeprefix('./')}"
    return f"${{OUTRIDER_MODELS:-/srv/models}}/{drafter.model}"


def on_host(source: str, env: Mapping[str, str]) -> Path:
    """Where a mount's source lies, with its Compose variables (`${NAME:-default}`) filled in from `env`."""
    return Path(_VARIABLE.sub(lambda match: env.get(match[1]) or os.path.expandvars(match[2]), source))
