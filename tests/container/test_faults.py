"""What goes wrong around a container engine, for real: each fault is named, and nothing stays behind."""

from __future__ import annotations

import os
import socket
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from tests.container.conftest import ROOT, Cli

from outrider.runtime import ports
from outrider.runtime.docker_engine import DockerEngine
from outrider.runtime.render_compose import NAME_LABEL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = [pytest.mark.container, pytest.mark.engine, pytest.mark.timeout(600)]

STACK = "smollm2-cpu"
BASELINE = ("serve", STACK, "baseline", "--runtime", "compose")


@pytest.fixture(scope="module")
def port() -> int:
    return ports.free_port(7600)


@pytest.fixture(scope="module", autouse=True)
def _ready(image: Callable[[str], str], smollm2_dir: Path) -> None:
    image("serve-cpu")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, of 256 KiB."""
    place = tmp_path / "small"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(place)], check=True)
    yield place
    subprocess.run(["umount", str(place)], check=True)


def changed_stack(tmp_path: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """The embedded stack as a file of its own, changed."""
    facts = yaml.safe_load((ROOT / "stacks" / f"{STACK}.yaml").read_text())
    change(facts)
    path = tmp_path / f"{STACK}.yaml"
    path.write_text(yaml.safe_dump(facts))
    return path


def refusal(done: subprocess.CompletedProcess[str]) -> str:
    """What a refused command said, on one line: an error with its three parts, and no traceback."""
    assert done.returncode == 1, done.stdout + done.stderr
    assert "error: " in done.stderr
    assert "Traceback" not in done.stderr
    return " ".join((done.stdout + done.stderr).split())


def running(docker_engine: DockerEngine) -> list[str]:
    """Names of variants whose container is up or coming up."""
    up = {"running", "restarting", "paused"}
    found = docker_engine.containers(NAME_LABEL)
    return sorted(f["Config"]["Labels"][NAME_LABEL] for f in found if f["State"]["Status"] in up)


def test_no_docker_no_image_a_taken_port(outrider: Cli, port: int, tmp_path: Path, docker_engine: DockerEngine) -> None:
    serve = (*BASELINE, "--port", str(port))
    said = refusal(outrider(*serve, DOCKER_HOST=f"unix://{tmp_path}/none.sock"))
    assert "no Docker engine answers" in said
    assert "image outrider/none:1 is not here" in refusal(outrider(*serve, "--image", "outrider/none:1"))
    with socket.create_server(("127.0.0.1", port)):
        assert f"port {port} on 127.0.0.1 is taken" in refusal(outrider(*serve))
    assert running(docker_engine) == []


def test_compose_of_version_1_is_refused_with_what_was_found(outrider: Cli, port: int, tmp_path: Path) -> None:
    for name in ("docker", "docker-compose"):
        (tmp_path / name).write_text("#!/bin/sh\necho 1.29.2\n")
        (tmp_path / name).chmod(0o755)
    said = refusal(outrider(*BASELINE, "--port", str(port), PATH=str(tmp_path)))
    assert "Docker Compose 2.17 or newer is not here" in said
    assert "docker-compose: ['1.29.2']" in said


def test_a_key_that_is_absent_or_that_everybody_reads(outrider: Cli, port: int, tmp_path: Path) -> None:
    serve = (*BASELINE, "--port", str(port))
    assert "API key file cannot be read" in refusal(outrider(*serve, "--api-key-file", str(tmp_path / "none")))
    key = tmp_path / "open"
    key.write_text("k-4713")
    key.chmod(0o644)
    said = refusal(outrider(*serve, "--api-key-file", str(key)))
    assert "every user of this machine can read the API key" in said
    assert "k-4713" not in said
    assert "without an API key" in refusal(outrider(*serve, "--listen", "0.0.0.0"))


def test_a_model_that_is_absent_or_partly_downloaded(
    outrider: Cli, port: int, tmp_path: Path, smollm2_dir: Path, docker_engine: DockerEngine
) -> None:
    def from_a_store(facts: dict[str, Any]) -> None:
        del facts["target"]["source"]
        facts["target"]["model"] = "org/tiny"

    stack = changed_stack(tmp_path, from_a_store)
    serve = ("serve", str(stack), "baseline", "--runtime", "compose", "--port", str(port))
    store = tmp_path / "store"
    said = refusal(outrider(*serve, OUTRIDER_MODELS=str(store)))
    assert "a model of smollm2-cpu/baseline is not on this machine" in said
    assert f"{store}/org/tiny" in said
    model = store / "org" / "tiny"
    model.mkdir(parents=True)
    for file in smollm2_dir.iterdir():
        (model / file.name).write_bytes(file.read_bytes()[: 10**7])  # the weights are longer
    (model / "outrider-manifest.json").unlink()
    said = refusal(outrider(*serve, OUTRIDER_MODELS=str(store)))
    assert "FILE004" in said
    assert "preflight found errors" in said
    assert running(docker_engine) == []


def test_fewer_gpus_than_the_stack_needs(outrider: Cli, port: int, tmp_path: Path) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\nfor gpu in 0 1 2 3; do echo $gpu, 10, 97887; done\n")
    tool.chmod(0o755)
    said = refusal(
        outrider(
            "serve", "kimi-k2.5-rtx6000x8", "baseline", "--runtime", "compose", "--port", str(port),
            PATH=f"{tmp_path}:{os.environ['PATH']}",
        )
    )  # fmt: skip
    assert "kimi-k2.5-rtx6000x8 needs 8 GPUs, this machine has 4" in said


def test_a_full_disk_under_the_state_or_under_a_bundle(
    outrider: Cli, port: int, small_disk: Path, docker_engine: DockerEngine
) -> None:
    with pytest.raises(OSError, match="No space left"):
        (small_disk / "filler").write_bytes(bytes(10**6))
    said = refusal(outrider(*BASELINE, "--port", str(port), OUTRIDER_STATE=str(small_disk / "state")))
    assert "a disk is full" in said
    assert f"{small_disk}" in said
    assert running(docker_engine) == []
    (small_disk / "filler").unlink()
    said = refusal(outrider("bundle", STACK, str(small_disk / "bundle"), "--form", "venv"))
    assert f"{small_disk}/bundle has no room for the bundle" in said


def test_shared_memory_that_is_too_small_for_the_engine(outrider: Cli, port: int, docker_engine: DockerEngine) -> None:
    said = refusal(outrider(*BASELINE, "--port", str(port), OUTRIDER_SHM="64k"))
    assert "its shared memory is too small: 160 MiB required" in said
    assert "OUTRIDER_SHM" in said
    assert running(docker_engine) == []


def test_an_engine_that_the_oom_killer_takes_at_its_start(
    outrider: Cli, port: int, docker_engine: DockerEngine
) -> None:
    said = refusal(outrider(*BASELINE, "--port", str(port), OUTRIDER_MEMORY="600m"))
    assert "the kernel's OOM killer probably ended it" in said
    assert "OUTRIDER_MEMORY" in said
    assert "nothing is left running" in said
    (facts,) = docker_engine.containers(f"{NAME_LABEL}={STACK}/baseline")
    assert facts["HostConfig"]["Memory"] == 600 * 2**20
    assert running(docker_engine) == []


def test_an_engine_that_refuses_its_start_is_explained_and_not_restarted_for_ever(
    outrider: Cli, port: int, tmp_path: Path, docker_engine: DockerEngine
) -> None:
    stack = changed_stack(tmp_path, lambda facts: facts["engine"]["flags"].update({"no-such-flag": True}))
    serve = ("serve", str(stack), "baseline", "--runtime", "compose", "--port", str(port))
    assert "TARGET020" in refusal(outrider(*serve)), "preflight knows before anything is started"
    said = refusal(outrider(*serve, "--accept", "TARGET020"))
    assert "does not know the argument --no-such-flag" in said
    assert "nothing is left running" in said
    assert running(docker_engine) == []
