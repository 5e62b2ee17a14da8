"""Byte streams that go into a bundle: images from Docker, directories as tar; both are cut while they flow."""

from __future__ import annotations

import os
import subprocess
import tarfile
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO, cast

from outrider.bundle.errors import BundleError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path


@contextmanager
def saved_images(tags: Sequence[str]) -> Iterator[BinaryIO]:
    """`docker save` of these images, as it comes.

    Raises:
        BundleError: docker failed; it names the image that it lacks.
    """
    try:
        process = subprocess.Popen(["docker", "save", *tags], stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # noqa: S607
    except OSError as error:
        raise BundleError("there is no docker command", next_step="or bundle with --form venv") from error
    with process:
        yield cast("BinaryIO", process.stdout)
        said = process.stderr.read().decode(errors="replace") if process.stderr else ""
    if process.returncode:
        raise BundleError(
            "the images cannot be saved", evidence=said.strip()[-400:], next_step="make image-cpu, or make image"
        )


@contextmanager
def tarred(sources: Mapping[str, Path]) -> Iterator[BinaryIO]:
    """A tar of files and directories under the names given; equal inputs give equal bytes.

    Raises:
        BundleError: a file could not be read.
    """
    reading, writing = os.pipe()
    faults: list[OSError] = []

    def write() -> None:
        try:
            with os.fdopen(writing, "wb") as out, tarfile.open(fileobj=out, mode="w|") as archive:
                for name, path in sorted(sources.items()):
                    archive.add(path, name, filter=_plain)
        except BrokenPipeError:  # the reader failed, and says so itself
            pass
        except OSError as error:
            faults.append(error)

    thread = threading.Thread(target=write, name="bundle-tar")
    thread.start()
    try:
        with os.fdopen(reading, "rb") as source:
            yield source
    finally:
        thread.join()
    if faults:
        raise BundleError("a file cannot be bundled", evidence=str(faults[0])) from faults[0]


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """A member without owner and time; readable by all, because weights and wheels are no secrets."""
    if "__pycache__" in member.name:
        return None
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = "root"
    member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
    return member
