"""Gathers the wheels of an image on the host, so that its build needs no package index and no network.

pip's own configuration on the host decides where wheels come from; the locks decide which ones, by hash.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from outrider.errors import OutriderError

if TYPE_CHECKING:
    from pathlib import Path

TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
# glibc of the oldest base (Debian 12) is 2.36: every wheel up to that runs there.
_GLIBC_MINORS = range(36, 4, -1)
_PLATFORMS = (
    *(f"manylinux_2_{minor}_x86_64" for minor in _GLIBC_MINORS),
    "manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64", "linux_x86_64",
)  # fmt: skip


class ImageError(OutriderError):
    """An image that cannot be built, or that is not there."""


@dataclass(frozen=True, slots=True)
class WheelSet:
    """What one image installs.

    Attributes:
        locks: requirement files with hashes, relative to the project.
        python: version of the image's Python, `3.11`.
        index: where wheels are looked for if the configured index does not have them.
    """

    locks: tuple[str, ...]
    python: str
    index: str | None = None


def download_argv(lock: Path, out: Path, python: str, index: str | None = None) -> list[str]:
    """The pip command that fetches a lock's wheels for the image's platform, checking every hash."""
    tag = "cp" + python.replace(".", "")
    argv = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "-q", "--no-deps"]
    argv += ["--require-hashes", "--only-binary=:all:", "--python-version", python, "--implementation", "cp"]
    for abi in (tag, "abi3", "none"):
        argv += ["--abi", abi]
    for platform in _PLATFORMS:
        argv += ["--platform", platform]
    if index:
        argv += ["--index-url", index]
    return [*argv, "-d", str(out), "-r", str(lock)]


def gather(wheels: WheelSet, root: Path, out: Path) -> int:
    """Fill `out` with the wheels of one image; gives how many. What is there already is not fetched again.

    Raises:
        ImageError: a wheel cannot be had, or differs from its hash.
    """
    out.mkdir(parents=True, exist_ok=True)
    for name in wheels.locks:
        _run(
            [download_argv(root / name, out, wheels.python)]
            + ([download_argv(root / name, out, wheels.python, wheels.index)] if wheels.index else []),
            name,
        )
    return sum(1 for _ in out.glob("*.whl"))


def build_own(root: Path, out: Path) -> None:
    """Build Outrider's own wheel into a directory that holds nothing else: the same bytes for the same source.

    It lies apart from the others, so that a change of ours does not install everything again.

    Raises:
        ImageError: it cannot be built.
    """
    out.mkdir(parents=True, exist_ok=True)
    for stale in out.glob("*.whl"):
        stale.unlink()
    argv = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "-q", "--no-deps"]
    _run([[*argv, "--no-build-isolation", "-w", str(out), str(root)]], "outrider")


def _run(attempts: list[list[str]], what: str) -> None:
    """The first command that succeeds is enough."""
    # A fixed clock gives our own wheel the same bytes at each build.
    env = os.environ | {"SOURCE_DATE_EPOCH": "1700000000", "PIP_ROOT_USER_ACTION": "ignore"}
    for argv in attempts:
        done = subprocess.run(argv, capture_output=True, text=True, check=False, env=env)
        if done.returncode == 0:
            return
    raise ImageError(
        f"the wheels of {what} cannot be gathered",
        evidence="\n".join(done.stderr.strip().splitlines()[-6:]),
        next_step="check pip's index and the network; a hash that differs means: do not use that file",
    )
