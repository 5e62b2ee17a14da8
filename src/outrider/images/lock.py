"""`images.lock`: every image that Outrider builds on or starts, as a tag and the digest that it meant when locked."""

from __future__ import annotations

import json
import re
import subprocess
from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError

from outrider.images.wheels import ImageError

if TYPE_CHECKING:
    from pathlib import Path

Digest = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]
_DIGEST = re.compile(r'"?[Dd]igest"?:\s*"?(sha256:[0-9a-f]{64})')


class Image(BaseModel):
    """An image of somebody else.

    Attributes:
        tag: what people call it.
        digest: what it was when `make lock-images` ran; None: not resolved yet, so the tag is used.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    tag: str
    digest: Digest | None = None

    @property
    def reference(self) -> str:
        """What to pull."""
        return f"{self.tag}@{self.digest}" if self.digest else self.tag


class ImagesLock(BaseModel):
    """All of them, by the build argument or service that uses them."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    images: dict[str, Image]

    def reference(self, name: str) -> str:
        """What to pull for a name.

        Raises:
            ImageError: the lock has no such name.
        """
        if name not in self.images:
            raise ImageError(f"images.lock has no {name}", next_step=f"it has: {', '.join(self.images)}")
        return self.images[name].reference


def read_lock(path: Path) -> ImagesLock:
    """Read `images.lock`.

    Raises:
        ImageError: it is absent or not well-formed.
    """
    try:
        return ImagesLock.model_validate_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ImageError("there is no images.lock", evidence=f"{path}: {error.strerror}") from error
    except ValidationError as error:
        raise ImageError("images.lock is not well-formed", evidence=f"{path}: {error}") from None


def write_lock(path: Path, lock: ImagesLock) -> None:
    """Write `images.lock`, the same bytes for the same content."""
    path.write_text(json.dumps(lock.model_dump(), indent=2) + "\n", encoding="utf-8")


def digest_in(text: str) -> str | None:
    """The digest that `docker buildx imagetools inspect` or `docker manifest inspect --verbose` prints first."""
    match = _DIGEST.search(text)
    return match[1] if match else None


def resolve(tag: str) -> str:
    """Ask the registry which digest a tag means now.

    Raises:
        ImageError: the registry cannot be reached, or has no such tag.
    """
    said = []
    for argv in (
        ["docker", "buildx", "imagetools", "inspect", tag],
        ["docker", "manifest", "inspect", "--verbose", tag],
    ):
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode == 0 and (digest := digest_in(done.stdout)):
            return digest
        said.append(done.stderr.strip()[-300:])
    raise ImageError(
        f"the digest of {tag} cannot be had",
        evidence="\n".join(said),
        next_step="run this where the registry is reached; images.lock was not changed",
    )
