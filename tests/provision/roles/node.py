"""A node for the roles: systemd in a container, reached over SSH, with a made-up PCI bus and vendors' stand-ins.

What a container cannot have is made up beside it: `/srv/sysfs` is a tree with eight GPUs, and `depmod` there loads the
stand-in module as it were, by writing its version where a kernel would. Reboots and real modules are the virtual
machine's part.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from tests.provision.rig import interpreter, vendor
from tests.provision.rig.apt_repository import AptRepository, Package

ROOT = Path(__file__).resolve().parents[3]
GPUS = 8
_PATIENCE_S = 3000  # for a playbook; on a machine that was busy with other things site.yml took 800
_PLACEHOLDER = "VERSION@@@"
_MODULE = f"""\
__attribute__((section(".modinfo"), used)) static const char version[] = "version={_PLACEHOLDER}";
__attribute__((section(".modinfo"), used)) static const char license[] = "license=%s";
"""
_DEPMOD = """\
#!/bin/bash
(exec -a depmod /bin/kmod "$@")
mkdir -p /srv/sysfs/module/nvidia
modinfo -F version nvidia >/srv/sysfs/module/nvidia/version 2>/dev/null || rm -r /srv/sysfs/module/nvidia
"""
DOCKERFILE = """\
FROM {base}
COPY sysfs /srv/sysfs
COPY stand-in /etc/stand-in
COPY depmod /srv/depmod
COPY key.pub /root/.ssh/authorized_keys
COPY warm /
RUN apt-get update -qq \\
 && rm /usr/sbin/depmod && install --mode 755 /srv/depmod /usr/sbin/depmod \\
 && chmod 700 /root/.ssh && chmod 600 /root/.ssh/authorized_keys && mkdir -p /lib/modules/$(uname -r) \\
 && touch /lib/modules/$(uname -r)/modules.order /lib/modules/$(uname -r)/modules.builtin \\
 && systemctl mask systemd-udevd systemd-modules-load systemd-sysctl getty.target \\
 && python3 -m compileall -q {library} && systemctl enable {unit}
CMD ["/sbin/init"]
"""
_DOCKER = """\
#!/bin/sh
case "$1" in
  --version) echo "Docker version 28.5.1, build stand-in" ;;
  version) echo 28.5.1 ;;
  info) echo '{"runc":{}}' ;;
  *) echo "stand-in docker does not know: $*" >&2; exit 1 ;;
esac
"""
_ENGINE_UNIT = """\
[Unit]
Description=stand-in container engine
[Service]
ExecStart=/usr/bin/tail -f /dev/null
[Install]
WantedBy=multi-user.target
"""


@dataclass(frozen=True)
class Seen:
    """How a playbook ended.

    Attributes:
        code: exit code.
        text: what it printed.
        changed: tasks that changed something on the node; None if it did not come to the recap.
    """

    code: int
    text: str
    changed: int | None


@dataclass(frozen=True)
class Node:
    """A running container.

    Attributes:
        name: container.
        address: where its SSH answers.
        directory: on this machine: key, inventory, reports.
    """

    name: str
    address: str
    directory: Path

    def run(self, command: str, *, check: bool = True) -> str:
        """Run a command in it; gives its output."""
        done = _docker("exec", self.name, "bash", "-c", command, check=check)
        return done.stdout.strip()

    def play(self, playbook: str, variables: dict[str, Any], *words: str, others: dict[str, str] | None = None) -> Seen:
        """Run a playbook against it, and against others by name and address."""
        path = self._inventory({"node": self.address, **(others or {})}, variables)
        env = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible/ansible.cfg"), "ANSIBLE_HOST_KEY_CHECKING": "false",
               "ANSIBLE_NOCOLOR": "true", "ANSIBLE_LOCALHOST_WARNING": "false"}  # fmt: skip
        done = subprocess.run(
            ["ansible-playbook", "--inventory", str(path), *words, str(ROOT / "ansible" / playbook)],
            capture_output=True, text=True, check=False, env=env, timeout=_PATIENCE_S,
        )  # fmt: skip
        recap = [line for line in done.stdout.splitlines() if line.startswith("node ") and "changed=" in line]
        changed = int(recap[-1].split("changed=")[1].split()[0]) if recap else None
        return Seen(done.returncode, done.stdout + done.stderr, changed)

    def provision(self, others: dict[str, str], variables: dict[str, Any], *words: str) -> Seen:
        """Run `outrider provision` over it and others."""
        path = self._inventory({"node": self.address, **others}, variables)
        env = {**os.environ, "ANSIBLE_HOST_KEY_CHECKING": "false", "OUTRIDER_RESULTS": str(self.directory / "results"),
               "OUTRIDER_STATE": str(self.directory / "state"), "COLUMNS": "200", "NO_COLOR": "1"}  # fmt: skip
        argv = [sys.executable, "-m", "outrider.cli", "provision", "--inventory", str(path), "--json", "-", *words]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, env=env, timeout=_PATIENCE_S)
        assert done.stdout, done.stderr
        return Seen(done.returncode, done.stdout + done.stderr, json.loads(done.stdout)["changed"]["node"])

    def _inventory(self, places: dict[str, str], variables: dict[str, Any]) -> Path:
        access = {"ansible_user": "root", "ansible_ssh_private_key_file": str(self.directory / "key"),
                  "ansible_python_interpreter": interpreter.INTERPRETER}  # fmt: skip
        hosts = {name: {"ansible_host": address, **access} for name, address in places.items()}
        inventory = {"all": {"vars": variables, "children": {"serving_nodes": {"hosts": hosts}, "ray_workers": {}}}}
        path = self.directory / "inventory.yml"
        path.write_text(yaml.safe_dump(inventory))
        return path

    def report(self) -> dict[str, Any]:
        """The node report that the last run fetched."""
        found: dict[str, Any] = json.loads((self.directory / "run/nodes/node.json").read_text())
        return found

    def reset_packages(self) -> None:
        """Forget every package of the driver and what pins it, so that a test begins with none."""
        self.run(
            "apt-mark unhold $(apt-mark showhold) >/dev/null 2>&1; rm -f /etc/apt/preferences.d/*nvidia*;"
            " dpkg-query -W -f '${Package}\\n' '*nvidia*' 'libcuda1*' 'cuda-drivers*' 2>/dev/null | grep -v container |"
            " xargs -r apt-get -y purge --allow-change-held-packages >/dev/null 2>&1;"
            " rm -rf /srv/sysfs/module /etc/stand-in/build-fails*",
            check=False,
        )


def _docker(*words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(["docker", *words], capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0 or not check, done.stdout + done.stderr
    return done


def fake_bus(root: Path) -> None:
    """A sysfs tree with eight GPUs behind a root port, of which nothing else is known."""
    for index in range(GPUS):
        device = root / f"bus/pci/devices/0000:{index + 1:02x}:00.0"
        device.mkdir(parents=True)
        facts = {"vendor": "0x10de", "device": "0x2bb5", "class": "0x030200", "numa_node": str(index // 4),
                 "current_link_speed": "32.0 GT/s PCIe", "max_link_speed": "32.0 GT/s PCIe",
                 "current_link_width": "16", "max_link_width": "16"}  # fmt: skip
        for name, text in facts.items():
            (device / name).write_text(f"{text}\n")


def fake_modules(directory: Path, licence: str = "Dual MIT/GPL") -> Path:
    """Objects that `modinfo` reads like modules, of any kernel."""
    directory.mkdir(parents=True)
    for name in ("nvidia", "nvidia-uvm"):
        source = directory / f"{name}.c"
        source.write_text(_MODULE % licence)
        subprocess.run(["gcc", "-c", "-o", str(directory / f"{name}.ko"), str(source)], check=True)
    return directory


def _at_home(package: Package) -> Package:
    """A stand-in that looks at the made-up sysfs."""
    moved = {
        name: text.replace("/sys/module/nvidia", "/srv/sysfs/module/nvidia") if isinstance(text, str) else text
        for name, text in package.files.items()
    }
    return replace(package, files=moved)


class Vendors:
    """The repositories that a node is pointed to, below one directory."""

    def __init__(self, directory: Path, kernel: str) -> None:
        self.kernel = kernel
        self.modules = fake_modules(directory / "modules")
        self.closed = fake_modules(directory / "closed", "NVIDIA")
        self.driver = AptRepository(directory / "driver", vendor.ORIGIN)
        self.containers = AptRepository(directory / "containers", "containers")
        self.publish(vendor.FIRST)
        docker = Package(
            "docker-ce",
            "5:28.5.1-1",
            files={"/usr/bin/docker": _DOCKER, "/usr/lib/systemd/system/docker.service": _ENGINE_UNIT},
            executable=("/usr/bin/docker",),
            scripts={"postinst": "getent group docker >/dev/null || groupadd --system docker\n"},
        )
        self.containers.add(docker, *map(_at_home, vendor.toolkit(vendor.TOOLKIT)))
        self.containers.publish()

    def publish(self, *versions: str, flavour: str = "debian", to: AptRepository | None = None) -> None:
        """Add driver versions, their pinning packages, NCCL and its tests to the driver's repository or another."""
        repository = to or self.driver
        make = vendor.debian_driver if flavour == "debian" else vendor.ubuntu_driver
        for version in versions:
            repository.add(*map(_at_home, make(version, self.modules, self.kernel)))
            repository.add(vendor._pinning(version.split(".")[0]))
        repository.add(*vendor._nccl())
        repository.publish()

    def publish_proprietary(self, version: str) -> None:
        """Add the closed modules that a node may have from before."""
        self.driver.add(*map(_at_home, vendor.proprietary_driver(version, self.closed, self.kernel)))
        self.driver.publish()

    def close(self) -> None:
        """Forget the keys."""
        self.driver.close()
        self.containers.close()


def build(base: str, directory: Path, tag: str) -> None:
    """Build the node's image on a base that has systemd, SSH and Python."""
    context = directory / "context"
    fake_bus(context / "sysfs")
    (context / "stand-in").mkdir()
    gpus = [
        {
            "name": "NVIDIA RTX PRO 6000 Blackwell Server Edition",
            "memory_mib": 97887,
            "pcie_generation": 5,
            "pcie_width": 16,
        }
    ]
    (context / "stand-in/node.json").write_text(json.dumps({"gpus": gpus * GPUS, "p2p": True, "hang_at_ranks": [8]}))
    (context / "depmod").write_text(_DEPMOD)
    interpreter.lay(context / "warm")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(directory / "key")], check=True)
    (context / "key.pub").write_text((directory / "key.pub").read_text())
    (context / "Dockerfile").write_text(
        DOCKERFILE.format(base=base, library=f"/{interpreter.LIBRARY}", unit=interpreter.UNIT)
    )
    _docker("build", "--tag", tag, str(context))


def start(tag: str, directory: Path, mounts: dict[Path, str]) -> Node:
    """Boot a container and wait until systemd says that it has booted."""
    volumes = [word for source, place in mounts.items() for word in ("--volume", f"{source}:{place}:ro")]
    name = _docker(
        "run", "--detach", "--cap-add", "SYS_ADMIN", "--cap-add", "NET_ADMIN", "--security-opt", "apparmor=unconfined",
        "--tmpfs", "/run", "--tmpfs", "/run/lock", "--volume", "/sys/fs/cgroup/systemd:/sys/fs/cgroup/systemd:rw",
        *volumes, tag,
    ).stdout.strip()  # fmt: skip
    deadline = time.monotonic() + 120
    while _docker("exec", name, "systemctl", "is-system-running", "--wait", check=False).stdout.strip() not in {
        "running",
        "degraded",
    }:
        assert time.monotonic() < deadline, "the container did not boot"
    address = _docker("inspect", "--format", "{{.NetworkSettings.IPAddress}}", name).stdout.strip()
    return Node(name, address, directory)


def remove(node: Node) -> None:
    """End the container."""
    _docker("rm", "--force", "--volumes", node.name)
