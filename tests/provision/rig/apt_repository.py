"""A signed apt repository of stubs, made with Debian's own tools; apt on the node cannot tell it from a vendor's."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

MAINTAINER = "Outrider's tests <tests@outrider.invalid>"


@dataclass(frozen=True)
class Package:
    """A package to be built.

    Attributes:
        relations: fields such as Depends, Conflicts, Replaces, Provides.
        files: path on the node to content; bytes are written as they are.
        executable: those of `files` that run.
        scripts: maintainer scripts by name (postinst, prerm, ...).
    """

    name: str
    version: str
    relations: dict[str, str] = field(default_factory=dict)
    files: dict[str, str | bytes] = field(default_factory=dict)
    executable: tuple[str, ...] = ()
    scripts: dict[str, str] = field(default_factory=dict)
    architecture: str = "amd64"


class AptRepository:
    """A flat repository in a directory, signed by a key of its own.

    Args:
        directory: where packages and indices lie; serve it, or name it as `file:`.
        origin: Origin and Label of the Release file, which pins refer to.
    """

    def __init__(self, directory: Path, origin: str) -> None:
        self.directory = directory
        self.origin = origin
        directory.mkdir(parents=True, exist_ok=True)
        # gpg-agent's socket must have a short path.
        self._home = Path(tempfile.mkdtemp(prefix="outrider-gpg.", dir="/tmp"))
        self._gpg("--quick-generate-key", "--passphrase", "", f"{origin} (tests)", "ed25519", "sign", "1d")
        self._gpg("--output", str(self.key), "--export")

    @property
    def key(self) -> Path:
        """The public key, as `Signed-By` takes it."""
        return self.directory / "archive-keyring.gpg"

    def armoured_key(self) -> str:
        """The public key as text."""
        argv = ["gpg", "--homedir", str(self._home), "--batch", "--armor", "--export"]
        return subprocess.run(argv, check=True, capture_output=True, text=True).stdout

    def add(self, *packages: Package) -> None:
        """Build packages into the repository; `publish` makes them visible."""
        for package in packages:
            _build(package, self.directory)

    def publish(self) -> None:
        """Write and sign the indices."""
        for name in ("InRelease", "Release", "Release.gpg"):
            (self.directory / name).unlink(missing_ok=True)
        packages = _ftparchive(self.directory, "packages", ".")
        (self.directory / "Packages").write_text(packages)
        release = _ftparchive(
            self.directory, "release", "-o", f"APT::FTPArchive::Release::Origin={self.origin}",
            "-o", f"APT::FTPArchive::Release::Label={self.origin}", ".",
        )  # fmt: skip
        (self.directory / "Release").write_text(release)
        self._gpg("--clearsign", "--output", str(self.directory / "InRelease"), str(self.directory / "Release"))

    def close(self) -> None:
        """End the agent that gpg started, and forget the key."""
        subprocess.run(["gpgconf", "--homedir", str(self._home), "--kill", "all"], check=False, capture_output=True)
        shutil.rmtree(self._home, onerror=_unless_gone)

    def _gpg(self, *words: str) -> None:
        argv = ["gpg", "--homedir", str(self._home), "--batch", "--quiet", "--pinentry-mode", "loopback", *words]
        subprocess.run(argv, check=True, capture_output=True)


def _unless_gone(_call: object, _path: str, failure: tuple[type[BaseException], BaseException, object]) -> None:
    """The agent takes its sockets away while it ends."""
    if not isinstance(failure[1], FileNotFoundError):
        raise failure[1]


def _ftparchive(directory: Path, *words: str) -> str:
    argv = ["apt-ftparchive", *words]
    return subprocess.run(argv, check=True, capture_output=True, text=True, cwd=directory).stdout


def _build(package: Package, directory: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="outrider-deb.") as scratch:
        root = Path(scratch)
        root.chmod(0o755)
        for name, content in package.files.items():
            path = root / name.lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
            path.chmod(0o755 if name in package.executable else 0o644)
        control = root / "DEBIAN"
        control.mkdir()
        fields = {
            "Package": package.name,
            "Version": package.version,
            "Architecture": package.architecture,
            "Maintainer": MAINTAINER,
            **package.relations,
            "Description": "stand-in for tests, drives no GPU",
        }
        (control / "control").write_text("".join(f"{name}: {value}\n" for name, value in fields.items()))
        for name, text in package.scripts.items():
            (control / name).write_text("#!/bin/sh\nset -e\n" + text)
            (control / name).chmod(0o755)
        target = directory / f"{package.name}_{package.version}_{package.architecture}.deb"
        env = os.environ | {"SOURCE_DATE_EPOCH": "1764000000"}
        subprocess.run(
            ["dpkg-deb", "--root-owner-group", "-Znone", "--build", scratch, str(target)],
            check=True, capture_output=True, env=env,
        )  # fmt: skip
