#!/usr/bin/env python3
"""Reads what a node's kernel and firmware say, and prints it as JSON: the first part of the node report.

    python3 node_kernel.py [--sysfs /sys] [--proc /proc] [--disk DIR] [--key CERTIFICATE]

Preflight and the roles run it before anything is installed; the fields are described in node_facts.py, which adds what
NVIDIA's tools, containers and the package database say. Standard library only; changes nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import resource
import shutil
import socket
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path

SCHEMA = 1
TOOL_TIMEOUT_S = 30
NVIDIA = "0x10de"
_EFI_SECURE_BOOT = "firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
# Source validation, request and completion redirect, upstream forwarding (PCI Express, access control services).
_ACS_REDIRECTS = 0b11101


def run(*argv, timeout_s=TOOL_TIMEOUT_S):
    """Standard output and error of a tool, and its exit code; None if it is not there, -1 if it ran out of time."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout_s, check=False, errors="replace")
    except FileNotFoundError:
        return "", f"{argv[0]}: not found", None
    except subprocess.TimeoutExpired:
        return "", f"{argv[0]}: no answer within {timeout_s} s", -1
    return done.stdout, done.stderr, done.returncode


def text_of(path):
    """A small file's text without white space around it; None if it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def number(text):
    """An int or a float from a tool's word; None for "[N/A]" and the like."""
    found = re.match(r"\s*(-?\d+(\.\d+)?)", text or "")
    if not found:
        return None
    return float(found[1]) if found[2] else int(found[1])


def read_os(path="/etc/os-release"):
    """Id, version and name of the system."""
    words = dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', text_of(path) or "", re.MULTILINE))
    return {"id": words.get("ID"), "version": words.get("VERSION_ID"), "pretty_name": words.get("PRETTY_NAME")}


def read_kernel(proc):
    """Release, command line, and whether headers to build modules against are there."""
    release = text_of(proc / "sys/kernel/osrelease") or os.uname().release
    cmdline = (text_of(proc / "cmdline") or "").split()
    return {"release": release, "cmdline": cmdline, "headers": Path(f"/lib/modules/{release}/build").exists()}


def parse_cpuinfo(text):
    """Vendor, model and counts from /proc/cpuinfo."""
    value = lambda key: re.findall(rf"^{key}\s*:\s*(.*)$", text, re.MULTILINE)  # noqa: E731
    sockets = set(value("physical id")) or {"0"}
    cores = set(zip(value("physical id"), value("core id"), strict=False))
    threads = len(value("processor"))
    return {
        "vendor": (value("vendor_id") or [None])[0],
        "model": (value("model name") or [None])[0],
        "sockets": len(sockets),
        "cores": len(cores) or threads,
        "threads": threads,
    }


def read_cpu(sysfs, proc):
    """The CPUs, their nodes and the governor of the first."""
    nodes = list((sysfs / "devices/system/node").glob("node[0-9]*"))
    governor = text_of(sysfs / "devices/system/cpu/cpu0/cpufreq/scaling_governor")
    return {**parse_cpuinfo(text_of(proc / "cpuinfo") or ""), "numa_nodes": len(nodes) or 1, "governor": governor}


def read_memory(sysfs, proc):
    """Memory, huge pages and shared memory."""
    values = {
        key: int(count) for key, count in re.findall(r"^(\w+):\s+(\d+)", text_of(proc / "meminfo") or "", re.MULTILINE)
    }
    transparent = re.search(r"\[(\w+)\]", text_of(sysfs / "kernel/mm/transparent_hugepage/enabled") or "")
    shm = shutil.disk_usage("/dev/shm").total if Path("/dev/shm").is_dir() else None
    return {
        "memory_gib": round(values["MemTotal"] / 2**20, 1) if "MemTotal" in values else None,
        "shm_gib": round(shm / 2**30, 1) if shm else None,
        "hugepages": {
            "size_kib": values.get("Hugepagesize"),
            "total": values.get("HugePages_Total"),
            "transparent": transparent[1] if transparent else None,
        },
    }


def read_limits():
    """Locked memory and open files that services get: systemd's defaults, else this process's own."""
    shown, _, code = run("systemctl", "show", "--property", "DefaultLimitMEMLOCK,DefaultLimitNOFILE")
    values = dict(re.findall(r"DefaultLimit(\w+)=(\w+)", shown)) if code == 0 else {}
    memlock, files = values.get("MEMLOCK"), values.get("NOFILE")
    if memlock is None or files is None:
        own_memlock, own_files = (
            resource.getrlimit(resource.RLIMIT_MEMLOCK)[1],
            resource.getrlimit(resource.RLIMIT_NOFILE)[1],
        )
        memlock, files = str(own_memlock), str(own_files)
    unlimited = memlock in {"infinity", "-1", str(2**64 - 1)}
    open_files = 2**30 if files in {"infinity", "-1"} else int(files)
    return {"memlock_kib": -1 if unlimited else int(memlock) // 1024, "open_files": open_files}


def read_secure_boot(sysfs, key=None):
    """Whether Secure Boot is on (no EFI: off), and whether the key that signs modules is enrolled."""
    variable = sysfs / _EFI_SECURE_BOOT
    try:
        on = bool(variable.read_bytes()[-1])
    except (OSError, IndexError):
        on = None if (sysfs / "firmware/efi").is_dir() else False
    enrolled = None
    if key:
        said, error, code = run("mokutil", "--test-key", str(key))
        enrolled = None if code is None else "already enrolled" in said + error
    return {"secure_boot": on, "secure_boot_key_enrolled": enrolled}


def read_iommu(sysfs):
    """`off` without groups; `pt` if every PCI device's group passes addresses through; else `on`."""
    kinds = {text_of(group / "type") for group in (sysfs / "kernel/iommu_groups").glob("*")} - {None}
    if not kinds:
        return "off"
    return "pt" if kinds == {"identity"} else "on"


def acs_control(config):
    """The control word of access control services in a device's configuration space; None if it has none.

    Args:
        config: bytes of sysfs's `config`; extended capabilities begin at 0x100 and only root reads them.
    """
    offset, seen = 0x100, set()
    while offset and offset not in seen and offset + 8 <= len(config):
        seen.add(offset)
        header = int.from_bytes(config[offset : offset + 4], "little")
        if header & 0xFFFF == 0x000D:
            return int.from_bytes(config[offset + 6 : offset + 8], "little")
        offset = header >> 20
    return None


def read_pci(sysfs):
    """GPUs, NVSwitches, and bridges with access control services on."""
    gpus, switches, ports, readable = [], 0, [], False
    for device in sorted((sysfs / "bus/pci/devices").glob("*")):
        kind, vendor = (text_of(device / "class") or "")[2:6], text_of(device / "vendor")
        if vendor == NVIDIA and kind in {"0300", "0302"}:
            driver = (device / "driver").resolve().name if (device / "driver").exists() else None
            gpus.append({"address": device.name, "id": (text_of(device / "device") or "")[2:], "driver": driver})
        switches += vendor == NVIDIA and kind == "0680"
        if kind == "0604":
            try:
                config = (device / "config").read_bytes()
            except OSError:
                continue
            # Without root only the first 64 bytes are given.
            readable = readable or len(config) > 64
            if (acs_control(config) or 0) & _ACS_REDIRECTS:
                ports.append(device.name)
    bridges = any((text_of(path) or "")[2:6] == "0604" for path in (sysfs / "bus/pci/devices").glob("*/class"))
    acs = bool(ports) if readable or not bridges else None
    return {"pci_gpus": gpus, "nvswitches": switches, "acs": acs, "acs_ports": ports}


def used_gb(path):
    """Size in GB of the files below a directory; 0 if it is not there. Files may come and go meanwhile."""
    sizes = 0
    for root, _, names in os.walk(path):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                sizes += Path(root, name).lstat().st_size
    return round(sizes / 1e9, 1)


def room_of(path):
    """Size and free room in GB of the filesystem that a path, or its nearest parent that is there, lies on."""
    place = Path(path)
    while not place.exists() and place != place.parent:
        place = place.parent
    usage = shutil.disk_usage(place)
    return {"size_gb": round(usage.total / 1e9, 1), "free_gb": round(usage.free / 1e9, 1)}


def read_disks(proc):
    """Mounted filesystems on block devices."""
    disks, seen = [], set()
    for line in (text_of(proc / "mounts") or "").splitlines():
        device, mount, filesystem = line.split()[:3]
        if device.startswith("/dev/") and device not in seen and not device.startswith("/dev/loop"):
            seen.add(device)
            disks.append({"mount": mount, "device": device, "filesystem": filesystem, **room_of(mount)})
    return disks


def read_kernel_facts(sysfs, proc, disk, key=None):
    """What the kernel and the firmware say."""
    loaded = {path.name for path in (sysfs / "module").glob("*")}
    return {
        "schema": SCHEMA,
        "taken_at": datetime.now(timezone.utc).isoformat(timespec="seconds"),  # noqa: UP017 - nodes with Python 3.10
        "hostname": socket.gethostname(),
        "boot_id": text_of(proc / "sys/kernel/random/boot_id"),
        "os": read_os(),
        "kernel": read_kernel(proc),
        "cpu": read_cpu(sysfs, proc),
        **read_memory(sysfs, proc),
        **read_limits(),
        **read_secure_boot(sysfs, key),
        "iommu": read_iommu(sysfs),
        **read_pci(sysfs),
        "modules": sorted(name for name in loaded if name.startswith("nvidia") or name == "nouveau"),
        "disk": {"path": str(disk), **room_of(disk), "used_gb": used_gb(disk), "read_gb_s": None},
        "disks": read_disks(proc),
    }


def main():
    """Print the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sysfs", type=Path, default=Path("/sys"))
    parser.add_argument("--proc", type=Path, default=Path("/proc"))
    parser.add_argument("--disk", type=Path, default=Path("/var/lib/outrider"))
    parser.add_argument("--key", type=Path)
    asked = parser.parse_args()
    json.dump(read_kernel_facts(asked.sysfs, asked.proc, asked.disk, asked.key), sys.stdout, indent=1)


if __name__ == "__main__":
    main()
