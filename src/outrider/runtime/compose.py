"""The compose runtime: a variant as a service of its stack's Compose project.

    runtime = ComposeRuntime(state_dir(), stack)
    launch = replace(container_launch(stack, "ngram"), port=8000)     # the port outside
    with runtime.start("smollm2-cpu/ngram", launch) as engine:
        measure(engine.url)

What is running is asked of Docker, by labels; nothing else is kept but the rendered project file. A stopped container
stays until its next start, for its log. Unlike a local run, a container that is not detached cannot be made to die
with its starter if that is killed outright: `outrider stop --runtime compose` ends it.
"""

from __future__ import annotations

import os
import resource
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outrider import __version__
from outrider.errors import EngineError, RunsAlreadyError, RuntimeStateError
from outrider.model_store.locate import cache_root
from outrider.runtime import ports, readiness
from outrider.runtime.base import State, Status
from outrider.runtime.compose_running import ComposeRunning, status_from
from outrider.runtime.container import foreign_image, mounts, on_host
from outrider.runtime.docker_engine import DockerEngine
from outrider.runtime.lock import locked
from outrider.runtime.record import entry
from outrider.runtime.render_compose import NAME_LABEL, compose_text, service_name
from outrider.runtime.secret import place_key, read_key
from outrider.runtime.starting import await_answer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from outrider.engine import Launch
    from outrider.runtime.base import Progress
    from outrider.stack import Stack

GRACE_S = 20
IMAGE_USER = (10001, 10001)
_PROJECT = Path(__file__).resolve().parents[3]
_NOFILE = 65536


@dataclass(frozen=True, slots=True)
class ComposeOptions:
    """What a stack does not say.

    Attributes:
        image: another image than the one that this version of Outrider builds.
        api_key_file: file with the API key; required where more than loopback is listened on.
        grace_s: seconds between SIGTERM and SIGKILL at a stop.
        fixed_s: the part of a start's budget that does not depend on the weights.
    """

    image: str | None = None
    api_key_file: Path | None = None
    grace_s: int = GRACE_S
    fixed_s: float = readiness.FIXED_S


class ComposeRuntime:
    """Starts, finds and stops engines in containers; see `outrider.runtime.base.Runtime`."""

    def __init__(self, state_dir: Path, stack: Stack | None = None, options: ComposeOptions = ComposeOptions()) -> None:
        """Keep project files below `state_dir`; `stack` is needed by `start` only.

        Raises:
            RuntimeStateError: no Docker engine answers, or its SDK is not installed.
        """
        self._state_dir = state_dir.absolute() / "compose"
        self._stack = stack
        self._options = options
        self._docker = DockerEngine()

    def start(
        self,
        name: str,
        launch: Launch,
        *,
        host: str = "127.0.0.1",
        on_progress: Callable[[Progress], None] | None = None,
        detached: bool = False,
        labels: Mapping[str, str] | None = None,  # noqa: ARG002 - the rendered service carries its own
        weights: Sequence[Path] = (),
    ) -> ComposeRunning:
        """Start a service and wait until it answers; `launch.port` is the port outside. See `Runtime.start`."""
        stack, variant = self._require_stack(name)
        files = entry(self._state_dir, name)
        files.create()
        with locked(files.lock, name):
            self._refuse_running(name)
            ports.require_free(launch.port, host)
            env = self._environment(stack, host, launch.port, weights, files.record.parent)
            _require_mounts(stack, variant, os.environ | env)
            project = files.record.with_name("compose.yaml")
            project.write_text(compose_text(stack, tuple(stack.variants), __version__), encoding="utf-8")
            self._require_image(stack, variant, env)
            up = ("up", "--detach", "--no-deps", "--force-recreate", service_name(variant))
            try:
                self._docker.compose(project, "--profile", service_name(variant), *up, env=env)
                running = ComposeRunning(self._docker, name, self._facts(name), self._options.grace_s)
                budget = readiness.budget_for(launch, weights, fixed_s=self._options.fixed_s)
                await_answer(running, launch, budget, on_progress=on_progress)
            except BaseException:  # Ctrl-C included: nothing stays running
                self._end(name)
                raise
        if detached:
            running.detach()
        return running

    def status(self, name: str) -> Status:
        """What is known of a name."""
        found = self._docker.containers(f"{NAME_LABEL}={name}")
        return status_from(name, found[0]) if found else Status(name, State.ABSENT)

    def list(self) -> tuple[Status, ...]:
        """Every name that has a container, in order of name."""
        names = {str(facts["Config"]["Labels"][NAME_LABEL]) for facts in self._docker.containers(NAME_LABEL)}
        return tuple(self.status(name) for name in sorted(names))

    def log_lines(self, name: str, last: int | None = None) -> Sequence[str]:
        """Output of a name's container."""
        found = self._docker.containers(f"{NAME_LABEL}={name}")
        return self._docker.log_text(found[0]["Id"], last).splitlines() if found else []

    def stop(self, name: str) -> Status:
        """End a name's container and prove that its port is free; harmless when nothing runs."""
        status = self.status(name)
        self._end(name)
        if status.port and status.state in {State.STARTING, State.READY}:
            self._require_port_free(name, status.port)
        return self.status(name)

    def _require_stack(self, name: str) -> tuple[Stack, str]:
        stack_name, _, variant = name.rpartition("/")
        if self._stack is None or self._stack.name != stack_name:
            raise RuntimeStateError(
                f"{name} cannot be started without its stack", next_step="construct ComposeRuntime with the stack"
            )
        self._stack.variant(variant)
        return self._stack, variant

    def _refuse_running(self, name: str) -> None:
        status = self.status(name)
        if status.state in {State.STARTING, State.READY}:
            raise RunsAlreadyError(
                f"{name} runs already",
                evidence=f"a container on {status.url}, started by an earlier command",
                next_step=f"use it, or end it with: outrider stop {name.replace('/', ' ')} --runtime compose",
            )

    def _environment(
        self, stack: Stack, host: str, port: int, weights: Sequence[Path], directory: Path
    ) -> dict[str, str]:
        """Values of the project's variables."""
        uid, gid = IMAGE_USER if os.geteuid() == 0 else (os.getuid(), os.getgid())
        for path in weights:
            _require_readable(path, uid)
        nofile = min(_NOFILE, resource.getrlimit(resource.RLIMIT_NOFILE)[1] % 2**31 or _NOFILE)
        env = {
            "OUTRIDER_BIND": ports.resolve(host),
            "OUTRIDER_PORT": str(port),
            "OUTRIDER_CACHE": str(cache_root().absolute()),
            "OUTRIDER_PROJECT": str(_PROJECT),
            "OUTRIDER_UID": str(uid),
            "OUTRIDER_GID": str(gid),
            "OUTRIDER_NOFILE": os.environ.get("OUTRIDER_NOFILE", str(nofile)),
        }
        if self._options.image:
            env["OUTRIDER_IMAGE"] = self._options.image
        if self._options.api_key_file:
            key = read_key(self._options.api_key_file)
            env["OUTRIDER_API_KEY_FILE"] = str(place_key(key, directory / "secrets" / "api_key", uid, gid))
        elif host not in ports.LOOPBACK:
            raise RuntimeStateError(
                f"{stack.name} would listen on {host} without an API key",
                next_step="give --api-key-file, or listen on loopback and put a proxy in front",
            )
        return env

    def _require_image(self, stack: Stack, variant: str, env: Mapping[str, str]) -> None:
        if foreign := foreign_image(stack, variant):
            image = os.environ.get("OUTRIDER_SGLANG_IMAGE", foreign)
            self._docker.require_image(image, f"docker pull {image}")
            return
        target = "serve" if stack.engine.build == "cuda" else "serve-cpu"
        image = env.get("OUTRIDER_IMAGE", f"outrider/{target}:{__version__}")
        self._docker.require_image(image, f"outrider image build {target}")

    def _facts(self, name: str) -> dict[str, Any]:
        found = self._docker.containers(f"{NAME_LABEL}={name}")
        if not found:
            raise EngineError(f"Compose made no container for {name}", next_step="docker compose ps --all")
        return found[0]

    def _end(self, name: str) -> None:
        for facts in self._docker.containers(f"{NAME_LABEL}={name}"):
            self._docker.stop(facts["Id"], self._options.grace_s)

    @staticmethod
    def _require_port_free(name: str, port: int) -> None:
        if not ports.is_free(port):
            raise RuntimeStateError(
                f"{name} was stopped, but its port {port} is still taken",
                evidence=ports.describe_owners(port, "127.0.0.1"),
                next_step="end that process; Docker's proxy lets go within a second",
            )


def _require_mounts(stack: Stack, variant: str, env: Mapping[str, str]) -> None:
    """Refuse a model directory that is not there, which Docker would say in the words of its mounts."""
    for mount in mounts(stack, variant):
        if not (path := on_host(mount.source, env)).is_dir():
            raise RuntimeStateError(
                f"a model of {stack.name}/{variant} is not on this machine",
                evidence=f"{path}, from {mount.source}, is no directory",
                next_step="download it to there (outrider fetch, or the repository's own tool), or set that variable",
            )


def _require_readable(path: Path, uid: int) -> None:
    """Refuse a directory that the container's user cannot read; what lies above it does not matter to a bind mount.

    Files of Outrider's own cache are opened to readers instead: they are public weights.
    """
    own = path.resolve().is_relative_to(cache_root().resolve())
    for each in (path, *path.glob("*")):
        facts = each.stat()
        wanted = 0o5 if each.is_dir() else 0o4
        if facts.st_uid == uid or facts.st_mode & wanted == wanted:
            continue
        if own and facts.st_uid == os.geteuid():
            each.chmod(facts.st_mode & 0o7777 | wanted | wanted << 3)
        else:
            raise RuntimeStateError(
                f"the container's user {uid} cannot read the model",
                evidence=f"{each} has mode {facts.st_mode & 0o7777:04o}",
                next_step=f"chmod -R a+rX {path}",
            )
