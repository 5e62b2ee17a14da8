"""A node: the image's disk under QEMU, emulated in software, reached over SSH on a loopback port."""

from __future__ import annotations

import contextlib
import json
import re
import select
import shlex
import socket
import struct
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.provision.rig.image import Image

_BOOT_S = 600.0  # a quiet machine takes half a minute
# QEMU's own test device, and what it is made to look like: vendor 10de, an RTX PRO 6000 Blackwell, a 3D controller.
_TEST_DEVICE = (0x1B36, 0x0005)
_GPU = (0x10DE, 0x2BB5, 0x030200)


@dataclass(frozen=True)
class Machine:
    """A running node.

    Attributes:
        port: of SSH on 127.0.0.1.
        key: private key that root's account takes.
        process: QEMU.
        console: what the node printed on its serial line.
    """

    port: int
    key: Path
    process: subprocess.Popen[bytes]
    console: Path
    monitor: Path

    @property
    def ssh_options(self) -> list[str]:
        """Options with which `ssh` reaches it; the host key is this boot's own."""
        return ["-i", str(self.key), "-p", str(self.port), "-o", "StrictHostKeyChecking=no", "-o", "ConnectTimeout=10",
                "-o", f"UserKnownHostsFile={self.console.with_suffix('.hosts')}", "-o", "LogLevel=ERROR",
                "-o", "BatchMode=yes", "-o", "KexAlgorithms=curve25519-sha256"]  # fmt: skip

    def run(self, command: str, *, check: bool = True, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        """Run a shell command on the node as root."""
        argv = ["ssh", *self.ssh_options, "root@127.0.0.1", command]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=timeout)
        assert done.returncode == 0 or not check, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done

    @contextlib.contextmanager
    def holding(self, *argv: str) -> Iterator[None]:
        """Let a program run on the node during the block; it prints a line once it is ready."""
        ssh = ["ssh", "-tt", *self.ssh_options, "root@127.0.0.1", shlex.join(argv)]
        process = subprocess.Popen(ssh, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            assert process.stdout is not None
            assert process.stdout.readline()
            yield
        finally:
            process.terminate()  # the terminal's end hangs the program up
            process.wait()
            process.communicate()

    def write(self, path: str, text: str) -> None:
        """Write a file on the node."""
        quoted = shlex.quote(path)
        argv = ["ssh", *self.ssh_options, "root@127.0.0.1", f"mkdir -p $(dirname {quoted}) && cat > {quoted}"]
        subprocess.run(argv, input=text.encode(), check=True, timeout=60)

    def cut_network(self) -> None:
        """Unplug the node's network, as a lost link does; connections hang until they time out."""
        _monitor(self.monitor, "set_link", name="net0", up=False)

    def mend_network(self) -> None:
        """Plug it in again."""
        _monitor(self.monitor, "set_link", name="net0", up=True)


@contextlib.contextmanager
def booted(
    image: Image, key: Path, directory: Path, *, gpus: int = 1, memory_mib: int = 1024, name: str = "node"
) -> Iterator[Machine]:
    """Boot a fresh node and wait for SSH; QEMU is ended by its own process at the end.

    Args:
        image: made by `rig.image.build`.
        key: private key.
        directory: where overlay, console and sockets lie.
        gpus: PCI devices that look like GPUs.
    """
    overlay, console = directory / f"{name}.qcow2", directory / f"{name}.log"
    monitor = directory / f"{name}.qmp"
    overlay.unlink(missing_ok=True)
    subprocess.run(
        ["qemu-img", "create", "-q", "-f", "qcow2", "-b", str(image.disk), "-F", "qcow2", str(overlay), "8G"],
        check=True,
    )
    port = _free_port()
    argv = [
        # What newer processors have (five levels of page tables, guarded copies by the byte) is dear to emulate: a boot
        # took 99 s of processor time as `max`, 67 s as this one. A second one would mostly wait for the first.
        "qemu-system-x86_64", "-machine", "q35", "-accel", "tcg,tb-size=512", "-cpu", "Nehalem", "-smp", "1",
        "-m", str(memory_mib), "-display", "none", "-serial", f"file:{console}", "-monitor", "none",
        "-qmp", f"unix:{monitor},server=on,wait=off", "-S",
        "-drive", f"file={overlay},if=virtio,cache=unsafe", "-cdrom", str(image.boot_loader), "-boot", "d",
        "-netdev", f"user,id=net0,hostfwd=tcp:127.0.0.1:{port}-:22", "-device", "virtio-net-pci,netdev=net0,id=nic",
        "-object", "rng-random,id=rng0,filename=/dev/urandom", "-device", "virtio-rng-pci,rng=rng0",
        *(word for _ in range(gpus) for word in ("-device", "pci-testdev")),
    ]  # fmt: skip
    with (directory / f"{name}.qemu.log").open("wb") as log:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    machine = Machine(port, key, process, console, monitor)
    try:
        _wait_for_file(monitor, process)
        _monitor(monitor, "query-status")  # answers once the devices are there
        if gpus:
            assert _disguise(process.pid) == gpus
        _monitor(monitor, "cont")
        wait_for_ssh(machine)
        yield machine
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        overlay.unlink(missing_ok=True)


def wait_for_ssh(machine: Machine, timeout_s: float = _BOOT_S) -> None:
    """Wait until a command runs over SSH."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        assert machine.process.poll() is None, f"QEMU ended:\n{_tail(machine.console)}"
        assert "Kernel panic" not in _tail(machine.console), _tail(machine.console)
        # `ssh` itself waits: for the banner of a node that is still booting.
        with contextlib.suppress(subprocess.TimeoutExpired):
            if machine.run("true", check=False, timeout=30).returncode == 0:
                return
        select.select([], [], [], 0.5)
    raise AssertionError(f"no SSH within {timeout_s:.0f} s:\n{_tail(machine.console)}")


def _tail(file: Path) -> str:
    return file.read_text(errors="replace")[-2500:] if file.is_file() else ""


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for_file(path: Path, process: subprocess.Popen[bytes]) -> None:
    while not path.exists():
        assert process.poll() is None, "QEMU ended at its start"
        select.select([], [], [], 0.05)


def _monitor(path: Path, command: str, **arguments: object) -> None:
    """One command over QEMU's machine protocol."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(30)
        connection.connect(str(path))
        with connection.makefile("rwb") as stream:
            stream.readline()  # its greeting
            for execute, given in (("qmp_capabilities", {}), (command, arguments)):
                stream.write(json.dumps({"execute": execute, "arguments": given}).encode() + b"\n")
                stream.flush()
                while True:
                    answer = json.loads(stream.readline())
                    assert "error" not in answer, answer
                    if "return" in answer:
                        break


def _disguise(pid: int) -> int:
    """Let QEMU's test devices look like GPUs by patching their configuration space; gives how many were found.

    QEMU must stand still (`-S`). A reset keeps what was patched.
    """
    vendor, device = _TEST_DEVICE
    found = 0
    with Path(f"/proc/{pid}/mem").open("r+b", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            span, rights = line.split()[:2]
            low, high = (int(part, 16) for part in span.split("-"))
            # The node's own memory is large, and no place of devices.
            if not rights.startswith("rw") or high - low > 900 << 20 or "[v" in line:
                continue
            try:
                memory.seek(low)
                content = memory.read(high - low)
            except (OSError, ValueError):
                continue
            for match in re.finditer(re.escape(struct.pack("<HH", vendor, device)), content):
                at = match.start()
                if content[at + 0x2C : at + 0x30] != struct.pack("<HH", 0x1AF4, 0x1100):  # QEMU's subsystem ids
                    continue
                for offset, value in (
                    (0x00, struct.pack("<HH", *_GPU[:2])),
                    (0x09, struct.pack("<I", _GPU[2])[:3]),
                    (0x2C, struct.pack("<HH", _GPU[0], 0x16C1)),
                ):
                    memory.seek(low + at + offset)
                    memory.write(value)
                found += 1
    return found
