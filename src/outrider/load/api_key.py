"""The bearer token, which only ever comes from a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outrider.errors import LoadError

if TYPE_CHECKING:
    from pathlib import Path


def read_api_key(path: Path | None) -> str | None:
    """Token in a file, stripped; None without a file. Raises LoadError, which never shows the token."""
    if path is None:
        return None
    try:
        key = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise LoadError(f"the API key cannot be read: {type(error).__name__}", evidence=str(path)) from None
    if not key or len(key.split()) != 1:
        raise LoadError(
            "the API key file does not hold one token", evidence=str(path), next_step="put the bare token in it"
        )
    return key
