"""A Docker engine with the images of this checkout; `.ci/containers` starts one and builds them."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from outrider import __version__
from outrider.errors import OutriderError
from outrider.runtime import ports
from outrider.runtime.docker_engine import DockerEngine, find_compose

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def docker_engine() -> DockerEngine:
    """The engine that DOCKER_HOST names; on CI a missing one is a failure, elsewhere a skip."""
    try:
        find_compose()
        return DockerEngine()
    except OutriderError as error:
        if os.environ.get("CI"):
            pytest.fail(str(error))
        pytest.skip(error.cause)


@pytest.fixture(scope="session")
def image(docker_engine: DockerEngine) -> Any:
    """Names an image of this checkout, which must have been built."""

    def named(target: str) -> str:
        tag = f"outrider/{target}:{__version__}"
        docker_engine.require_image(tag, f"outrider image build {target}, or .ci/containers")
        return tag

    return named


def docker(*words: str, check: bool = True, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    """Run docker; a failure shows what it printed."""
    done = subprocess.run(["docker", *words], capture_output=True, text=True, check=False, timeout=timeout)
    assert done.returncode == 0 or not check, done.stdout + done.stderr
    return done


@dataclass(frozen=True)
class Cli:
    """The command line with a state directory of its own."""

    env: dict[str, str]

    def __call__(self, *words: str, **changes: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "outrider.cli", *words],
            capture_output=True,
            text=True,
            check=False,
            timeout=400,
            env=self.env | changes,
        )

    def begin(self, *words: str) -> subprocess.Popen[str]:
        """Start it and let it run."""
        return subprocess.Popen(
            [sys.executable, "-m", "outrider.cli", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.env,
        )


@pytest.fixture(scope="module")
def outrider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    """`outrider ...`; whatever it left running in containers is stopped."""
    assert importlib.util.find_spec("docker"), "make env installs Docker's SDK"
    state = tmp_path_factory.mktemp("state")
    cli = Cli(os.environ | {"OUTRIDER_STATE": str(state), "COLUMNS": "200", "NO_COLOR": "1"})
    yield cli
    cli("stop", "--runtime", "compose")


REGISTRY = """\
version: 0.1
log: {{level: info}}
storage: {{filesystem: {{rootdirectory: {directory}}}}}
http: {{addr: "127.0.0.1:{port}"}}
"""


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An image registry of Debian's package on loopback, which Docker engines speak to without TLS; its address."""
    program = shutil.which("docker-registry")
    assert program is not None, "apt-get install docker-registry"
    directory, port = tmp_path_factory.mktemp("registry"), ports.free_port(7700)
    (directory / "config.yml").write_text(REGISTRY.format(directory=directory / "data", port=port))
    process = subprocess.Popen(
        [program, "serve", str(directory / "config.yml")],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    assert any("listening on" in line for line in process.stdout), "it ended"
    drain = threading.Thread(target=process.stdout.read)  # it logs each request
    drain.start()
    yield f"127.0.0.1:{port}"
    process.terminate()
    process.wait(10)
    drain.join(10)
