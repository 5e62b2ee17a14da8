"""The embedded stack as a unit of a real systemd, in a container: start, crash, restart, stop, with the real engine."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.container.conftest import docker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [pytest.mark.container, pytest.mark.engine, pytest.mark.timeout(900)]

HERE = Path(__file__).parent
TAG = "outrider-test/systemd"
DOCKERFILE = """\
ARG ENGINE
FROM ${ENGINE}
USER 0:0
RUN apt-get update -qq \\
 && apt-get install -y -qq --no-install-recommends systemd systemd-sysv dbus procps passwd >/dev/null \\
 && /usr/sbin/useradd --system --home-dir /nonexistent --shell /usr/sbin/nologin outrider
HEALTHCHECK NONE
ENTRYPOINT []
CMD ["/sbin/init"]
"""


@pytest.fixture(scope="module")
def machine(image: Callable[[str], str], smollm2_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A container that systemd has booted, with the engine's venv and the model."""
    directory = tmp_path_factory.mktemp("systemd")
    (directory / "Dockerfile").write_text(DOCKERFILE)
    docker("build", "--tag", TAG, "--build-arg", f"ENGINE={image('serve-cpu')}", str(directory), timeout=600)
    for path in (smollm2_dir, *smollm2_dir.iterdir()):
        path.chmod(path.stat().st_mode | (0o555 if path.is_dir() else 0o444))
    name = docker(
        "run", "--detach", "--shm-size", "1g", "--cap-add", "SYS_ADMIN", "--security-opt", "apparmor=unconfined",
        "--tmpfs", "/run", "--tmpfs", "/run/lock", "--volume", "/sys/fs/cgroup/systemd:/sys/fs/cgroup/systemd:rw",
        "--volume", f"{smollm2_dir}:/srv/model:ro", "--volume", f"{HERE}:/srv/story:ro", TAG,
    ).stdout.strip()  # fmt: skip
    try:
        await_boot(name)
        yield name
    finally:
        docker("rm", "--force", "--volumes", name)
        docker("image", "rm", "--force", TAG)


def await_boot(container: str, timeout_s: float = 120) -> None:
    """Ask until the bus is there, which answers once the boot has ended."""
    deadline = time.monotonic() + timeout_s
    while True:
        said = docker("exec", container, "systemctl", "is-system-running", "--wait", check=False, timeout=timeout_s)
        if said.stdout.strip() in {"running", "degraded"}:
            # As on a machine that systemd boots itself; in a container it leaves mounts private, and credentials are
            # then not seen by the unit's user.
            docker("exec", container, "mount", "--make-rshared", "/")
            return
        assert time.monotonic() < deadline, said.stdout + said.stderr


@pytest.fixture(scope="module")
def story(machine: str) -> dict[str, dict[str, Any]]:
    """What the script saw, by step; if it ends early, with what the unit printed."""
    python = "/opt/engine/bin/python"
    done = subprocess.run(
        ["docker", "exec", machine, python, "-P", "/srv/story/systemd_story.py", "/srv/model"],
        capture_output=True,
        text=True,
        check=False,
        timeout=800,
    )
    journal = docker("exec", machine, "journalctl", "--no-pager", "-n", "60", check=False).stdout
    assert done.returncode == 0, done.stdout + done.stderr + journal
    return {step["step"]: step for step in map(json.loads, done.stdout.splitlines())}


def test_the_unit_is_active_only_once_the_engine_answers(story: dict[str, dict[str, Any]]) -> None:
    assert story["ready"]["state"] == "ready"
    assert story["ready"]["shares"][-1] == 1.0
    assert len(story["ready"]["shares"]) >= 4


def test_the_engine_runs_confined_and_the_key_is_in_no_command(story: dict[str, dict[str, Any]]) -> None:
    assert story["confined"]["uid"] != "0"
    assert story["confined"]["no_new_privileges"] is True
    assert int(story["confined"]["capabilities"], 16) == 0
    assert story["confined"]["key_in_command"] is False


def test_a_unit_that_runs_is_not_started_again(story: dict[str, dict[str, Any]]) -> None:
    assert story["refused"]["cause"] == "smollm2-cpu/baseline runs already"


def test_a_killed_engine_is_started_again_and_known_to_be_another(story: dict[str, dict[str, Any]]) -> None:
    assert story["restarted"]["pid"] not in {None, story["ready"]["pid"]}
    assert story["restarted"]["alive"] is False, "the run that was started has ended"


def test_stopping_leaves_no_process_and_no_port(story: dict[str, dict[str, Any]]) -> None:
    assert story["stopped"]["state"] == "ended"
    assert story["stopped"]["port_free"] is True
    assert story["stopped"]["left"] == ""
    assert story["log"]["lines"] > 20
