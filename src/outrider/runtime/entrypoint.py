"""What a container or a unit starts: takes the API key from its file, then becomes the engine.

    python -m outrider.runtime.entrypoint vllm serve /models/target --port 8000

Standard library only, because it runs before the engine in the engine's own interpreter. The key never stands on a
command line: it goes from the secret file into the engine's environment. An empty file means no key.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

KEY_NAME = "api_key"
KEY_VARIABLE = "VLLM_API_KEY"
CONTAINER_SECRETS = Path("/run/secrets")


def key_file(env: Mapping[str, str], container_secrets: Path = CONTAINER_SECRETS) -> Path | None:
    """The file of the API key: systemd's credential, else Compose's secret; None if there is neither."""
    for directory in (env.get("CREDENTIALS_DIRECTORY"), container_secrets):
        if directory and (path := Path(directory) / KEY_NAME).exists():
            return path
    return None


def engine_environment(
    env: Mapping[str, str], prefix: Path = Path(sys.prefix), container_secrets: Path = CONTAINER_SECRETS
) -> dict[str, str]:
    """The engine's environment: the given one, the API key, and Intel's OpenMP where the interpreter has it.

    Without that library preloaded, speculation on the CPU engine loses its gain.
    """
    out = dict(env)
    try:
        path = key_file(env, container_secrets)
        key = path.read_text(encoding="utf-8").strip() if path else ""
    except OSError as error:
        sys.exit(f"the API key cannot be read: {error.filename}: {error.strerror}; it must be readable by this user")
    if key:
        out[KEY_VARIABLE] = key
    openmp = prefix / "lib" / "libiomp5.so"
    if openmp.is_file():
        out.setdefault("LD_PRELOAD", str(openmp))
    return out


def main(argv: Sequence[str]) -> None:
    """Become the engine; does not return."""
    if not argv:
        sys.exit("usage: python -m outrider.runtime.entrypoint COMMAND [ARGUMENT ...]")
    env = engine_environment(os.environ)
    try:
        os.execvpe(argv[0], list(argv), env)  # noqa: S606 - this process becomes it
    except OSError as error:
        sys.exit(f"cannot start {argv[0]}: {error.strerror}")


if __name__ == "__main__":
    main(sys.argv[1:])
