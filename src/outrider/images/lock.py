"""`images.lock`: every image that Outrider builds on or starts, as a tag and the digest that it meant when locked."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError

from outrider.errors import OutriderError
from outrider.images.wheels import ImageError
from outrider.runtime.docker_engine import DockerEngine

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Digest = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]


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


def resolve(tag: str) -> str:
    """Ask the registry which digest a tag means now, through the Docker engine and so with its mirrors and its logins.

    Raises:
        ImageError: no engine answers, the registry cannot be reached, or it has no such tag.
    """
    try:
        return DockerEngine().registry_digest(tag)
    except OutriderError as error:
        raise ImageError(
            f"the digest of {tag} cannot be had",
            evidence=": ".join(filter(None, (error.cause, error.evidence))),
            next_step="run this where a Docker engine reaches the registry; images.lock was not changed",
        ) from error


def renew(path: Path, on_image: Callable[[str, Image], None] = lambda _name, _image: None) -> ImagesLock:
    """Resolve every tag of a lock file and write the digests into it; unchanged if one of them cannot be had.

    Raises:
        ImageError: the file cannot be read, or a digest cannot be had.
    """
    images: dict[str, Image] = {}
    for name, image in read_lock(path).images.items():
        images[name] = image.model_copy(update={"digest": resolve(image.tag)})
        on_image(name, images[name])
    lock = ImagesLock(images=images)
    write_lock(path, lock)
    return lock
