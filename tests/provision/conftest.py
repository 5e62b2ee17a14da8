"""A fresh node in a virtual machine, the vendor's repository beside it, and the command line over both."""

from __future__ import annotations

import functools
import http.server
import json
import os
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from tests.provision.rig import image, interpreter, machine, vendor
from tests.provision.rig.apt_repository import AptRepository
from tests.provision.rig.kernel_module import compile_modules

if TYPE_CHECKING:
    from collections.abc import Iterator

GPU = {
    "name": "NVIDIA RTX PRO 6000 Blackwell Server Edition",
    "memory_mib": 97887,
    "pcie_generation": 5,
    "pcie_width": 16,
}
ROOT = Path(__file__).resolve().parents[2]
_PATIENCE_S = 3000  # emulated, on a machine that may be busy: 21 minutes were seen; alone it takes a few
_HOST_OF_NODE = "10.0.2.2"  # QEMU's user network: this machine's loopback, as the node sees it


class Repositories:
    """The vendor's and Docker's repositories, served over HTTP on loopback."""

    def __init__(self, directory: Path, modules: Path, kernel: str) -> None:
        self.modules, self.kernel = modules, kernel
        self.debian = AptRepository(directory / "debian", vendor.ORIGIN)
        self.ubuntu = AptRepository(directory / "ubuntu", vendor.ORIGIN)
        self.system = AptRepository(directory / "system", "Debian")
        self.system.add(*vendor.system(kernel))
        self.system.publish()
        self.docker = AptRepository(directory / "docker", "Docker")
        self.docker.add(*vendor.docker("28.5.2-1"))
        self.docker.publish()
        self.toolkit = AptRepository(directory / "toolkit", vendor.ORIGIN)
        self.toolkit.add(*vendor.toolkit(vendor.TOOLKIT))
        self.toolkit.publish()
        self.debian.add(*vendor.exporter("4.5.0-1"))
        self.debian.add(*vendor.proprietary_driver(vendor.FIRST, modules, kernel))
        vendor.publish_driver(self.debian, modules, kernel, "debian", (vendor.FIRST,))
        vendor.publish_driver(self.ubuntu, modules, kernel, "ubuntu", (vendor.FIRST, vendor.SECOND, vendor.NEXT_BRANCH))
        handler = functools.partial(_Quiet, directory=str(directory))
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def release(self, *versions: str) -> None:
        """Publish more versions of the driver in Debian's flavour."""
        vendor.publish_driver(self.debian, self.modules, self.kernel, "debian", versions)

    def uri(self, flavour: str) -> str:
        """Address of a repository as the node sees it."""
        return f"http://{_HOST_OF_NODE}:{self._server.server_address[1]}/{flavour}"

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        for repository in (self.system, self.debian, self.ubuntu, self.docker, self.toolkit):
            repository.close()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        return


@dataclass
class Site:
    """`outrider provision` over an inventory of one node."""

    node: machine.Machine
    repositories: Repositories
    directory: Path

    def inventory(self, **variables: Any) -> Path:
        """Write the inventory; variables go over those that name the test's repositories."""
        played = self.repositories
        known = {
            "ansible_host": "127.0.0.1",
            "ansible_port": self.node.port,
            "ansible_user": "root",
            "ansible_ssh_private_key_file": str(self.node.key),
            "ansible_ssh_common_args": "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR",
            "ansible_python_interpreter": interpreter.INTERPRETER,
            "preflight_gpus_min": 8,
            "outrider_weights_gb": 1,
            "nvidia_driver_repository_uri": played.uri("debian"),
            "nvidia_driver_repository_key": str(played.debian.key),
            "container_runtime_docker_repository_uri": played.uri("docker"),
            "container_runtime_docker_repository_suite": "/",
            "container_runtime_docker_repository_components": [],
            "container_runtime_docker_repository_key": str(played.docker.key),
            "container_runtime_toolkit_repository_uri": played.uri("toolkit"),
            "container_runtime_toolkit_repository_key": str(played.toolkit.key),
            "nccl_tests_source": "package",
            "node_report_canary_image": "stand-in",
            "node_report_disk_read_bytes": 20_000_000,
            "node_report_all_reduce_timeout_s": 60,
            "outrider_apt_lock_timeout_s": 20,
        }
        file = self.directory / "inventory.yml"
        file.write_text(yaml.safe_dump({"ray_workers": {"hosts": {"node1": known | variables}}}))
        return file

    def begin(self, *words: str, **variables: Any) -> subprocess.Popen[str]:
        """Start a run."""
        argv = [sys.executable, "-m", "outrider.cli", "provision", *words, "-i", str(self.inventory(**variables))]
        return self._start(argv)

    def make(self, target: str, *words: str, **variables: Any) -> Outcome:
        """Run a target of the Makefile over the inventory."""
        argv = ["make", "--no-print-directory", "-C", str(ROOT), target, f"INVENTORY={self.inventory(**variables)}"]
        return self.end(self._start([*argv, *words]))

    def _start(self, argv: list[str]) -> subprocess.Popen[str]:
        env = os.environ | {
            "OUTRIDER_RESULTS": str(self.directory / "results"),
            "OUTRIDER_STATE": str(self.directory / "state"),
            "COLUMNS": "200",
            "NO_COLOR": "1",
        }
        return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)

    def end(self, process: subprocess.Popen[str], said: str = "") -> Outcome:
        """Wait for a run; `said` is what was read of its output already."""
        said += process.communicate(timeout=_PATIENCE_S)[0]
        return Outcome(process.returncode, said, max((self.directory / "results" / "provision").iterdir()))

    def __call__(self, *words: str, **variables: Any) -> Outcome:
        return self.end(self.begin(*words, **variables))


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    code: int
    said: str
    directory: Path

    @property
    def summary(self) -> dict[str, Any]:
        """run.json."""
        return dict(json.loads((self.directory / "run.json").read_text()))

    @property
    def changed(self) -> int:
        """Tasks that changed the node."""
        return int(self.summary["nodes"]["node1"]["changed"])

    @property
    def report(self) -> dict[str, Any]:
        """The node report."""
        return dict(json.loads((self.directory / "nodes" / "node1.json").read_text()))

    def changes(self) -> list[str]:
        """Names of the tasks that changed something."""
        events = (json.loads(file.read_text()) for file in self.directory.glob("artifacts/ansible/job_events/*.json"))
        return [
            f"{one['event_data'].get('role')}: {one['event_data']['task']}"
            for one in events
            if one["event"] == "runner_on_ok" and one["event_data"].get("res", {}).get("changed")
        ]


@pytest.fixture(scope="session")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An SSH key of this test run."""
    path = tmp_path_factory.mktemp("key") / "id"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
    return path


@pytest.fixture(scope="session")
def node_image(tmp_path_factory: pytest.TempPathFactory, key: Path) -> image.Image:
    """A fresh Debian 12, made once a run."""
    return image.build(tmp_path_factory.mktemp("image"), key.with_suffix(".pub").read_text())


@pytest.fixture(scope="session")
def repositories(tmp_path_factory: pytest.TempPathFactory, node_image: image.Image) -> Iterator[Repositories]:
    """What the vendor publishes at the beginning."""
    directory = tmp_path_factory.mktemp("repositories")
    modules = compile_modules(tmp_path_factory.mktemp("module") / "open", node_image.kernel)
    made = Repositories(directory, modules, node_image.kernel)
    yield made
    made.close()


@pytest.fixture(scope="module")
def site(
    tmp_path_factory: pytest.TempPathFactory, node_image: image.Image, key: Path, repositories: Repositories
) -> Iterator[Site]:
    """A node that has just been installed, with eight GPUs on its bus."""
    directory = tmp_path_factory.mktemp("node")
    with machine.booted(node_image, key, directory, gpus=8) as node:
        describe(node)
        play_the_mirror(node, repositories)
        yield Site(node, repositories, directory)


def play_the_mirror(node: machine.Machine, repositories: Repositories) -> None:
    """Let the node's own sources be the test's: apt reads Debian's sixty thousand packages anew at every call."""
    node.write("/usr/share/keyrings/system.asc", repositories.system.armoured_key())
    source = f"deb [signed-by=/usr/share/keyrings/system.asc] {repositories.uri('system')} ./\n"
    node.run("rm -rf /etc/apt/sources.list /etc/apt/sources.list.d/* /var/lib/apt/lists/*")
    node.write("/etc/apt/sources.list", source)
    node.run("apt-get update -qq")


def describe(node: machine.Machine, **changes: Any) -> None:
    """Say what the stand-in tools find on the node."""
    node.write("/etc/stand-in/node.json", json.dumps({"gpus": [GPU] * 8, "p2p": True, **changes}))
