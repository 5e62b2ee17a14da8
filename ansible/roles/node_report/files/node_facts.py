#!/usr/bin/env python3
"""Reads what a node is, and prints it as JSON. Changes nothing; needs Python's standard library only.

    python3 node_facts.py [--sysfs /sys] [--proc /proc] [--disk DIR] [--key CERTIFICATE] [--kernel-only]

Ansible runs it on the node: preflight with --kernel-only (nothing of NVIDIA is asked), the node report as a whole.
`node_measure.py` adds what has to be measured. A value that cannot be read is null, which means unknown, never "no".

    schema         1
    taken_at       UTC, ISO 8601
    hostname, boot_id
    os             id, version, pretty_name
    kernel         release, cmdline (list of words), headers (bool: /lib/modules/RELEASE/build is there)
    cpu            vendor, model, sockets, cores, threads, numa_nodes, governor
    memory_gib, shm_gib, memlock_kib (-1: unlimited), open_files: limits are those that services get
    hugepages      size_kib, total, transparent
    secure_boot    bool;  secure_boot_key_enrolled: bool, null without --key
    iommu          off | pt | on
    acs            bool;  acs_ports: addresses of bridges with access control services on
    pci_gpus       list of address, id (device id as four hex digits), driver (kernel driver that has it)
    nvswitches     number of NVSwitches on the bus
    modules        loaded modules of nvidia and nouveau
    gpus           list of index, uuid, name, vram_gib, compute_capability, pci_address, numa_node, pcie_generation,
                   pcie_generation_max, pcie_width, pcie_width_max (current values are of an idle link: see below)
    driver         version (module that is loaded, else the one on disk), module_version (on disk), loaded_version,
                   userspace_version, open_modules, persistence, error (what nvidia-smi said when it failed)
    topology       matrix of words by GPU as `nvidia-smi topo -m` has them (X, PIX, PXB, PHB, NODE, SYS)
    p2p            bool: every pair reports peer access;  p2p_matrix: words of `nvidia-smi topo -p2p r`
    container      runtime (cdi | nvidia | none), engine_version, cdi_devices, canary_ok: null until measured
    disk           path, size_gb, free_gb (1e9 bytes), read_gb_s: null until measured
    disks          list of mount, device, filesystem, size_gb, free_gb
    packages       list of name, version, held: of driver, CUDA, NCCL, containers, exporters, kernel
    all_reduce     list of ranks, size_bytes, latency_us, bandwidth_gb_s (bus, 1e9 bytes/s), timed_out, error; empty until
                   measured; all_reduce_env: what NCCL was told;  unmeasured: reason by name of what was not measured

A GPU's link sleeps when idle: pcie_generation of an idle GPU is lower than under load, so node_measure.py reads it again
while the GPUs work. Fields that `outrider preflight --node` reads keep the names that it knows (docs/preflight.md).
"""

from __future__ import annotations

import argparse
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
_GPU_FIELDS = (
    "index", "uuid", "name", "memory.total", "compute_cap", "pci.bus_id", "persistence_mode", "driver_version",
)  # fmt: skip
_PACKAGES = re.compile(
    r"nvidia|^cuda|nccl|^docker|^containerd|^datacenter-gpu|dcgm|^prometheus-node|^linux-(image|headers)|^libcuda|nouveau"
)
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
    nodes = [path for path in (sysfs / "devices/system/node").glob("node[0-9]*")]
    governor = text_of(sysfs / "devices/system/cpu/cpu0/cpufreq/scaling_governor")
    return {**parse_cpuinfo(text_of(proc / "cpuinfo") or ""), "numa_nodes": len(nodes) or 1, "governor": governor}


def read_memory(sysfs, proc):
    """Memory, huge pages and shared memory."""
    values = {key: int(count) for key, count in re.findall(r"^(\w+):\s+(\d+)", text_of(proc / "meminfo") or "", re.M)}
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
        own_memlock, own_files = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1], resource.getrlimit(resource.RLIMIT_NOFILE)[1]
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


def link_of(sysfs, address):
    """PCIe generation and width of a device, now and at most, and its NUMA node."""
    # 2.5, 5, 8, 16, 32, 64 GT/s; sysfs rounds or not, by kernel.
    generation = {2: 1, 5: 2, 8: 3, 16: 4, 32: 5, 64: 6}
    device = sysfs / "bus/pci/devices" / address
    speed = lambda name: generation.get(int(number(text_of(device / name)) or 0))  # noqa: E731
    width = lambda name: number(text_of(device / name)) or None  # noqa: E731
    return {
        "numa_node": number(text_of(device / "numa_node")),
        "pcie_generation": speed("current_link_speed"),
        "pcie_generation_max": speed("max_link_speed"),
        "pcie_width": width("current_link_width"),
        "pcie_width_max": width("max_link_width"),
    }


def parse_gpus(csv):
    """GPUs from `nvidia-smi --query-gpu=... --format=csv,noheader,nounits`, in the order of _GPU_FIELDS."""
    gpus = []
    for line in csv.strip().splitlines():
        words = dict(zip(_GPU_FIELDS, (word.strip() for word in line.split(",")), strict=False))
        if not (words.get("index") or "").isdigit():
            continue
        memory_mib = number(words.get("memory.total"))
        capability = words.get("compute_cap") or ""
        gpus.append({
            "index": int(words["index"]),
            "uuid": words.get("uuid"),
            "name": words.get("name"),
            "vram_gib": round(memory_mib / 1024, 1) if memory_mib else None,
            "compute_capability": capability if re.fullmatch(r"\d+\.\d+", capability) else None,
            # nvidia-smi writes the domain with eight digits, sysfs with four.
            "pci_address": (words.get("pci.bus_id") or "").lower().removeprefix("0000") or None,
            "persistence": words.get("persistence_mode") == "Enabled",
            "driver_version": words.get("driver_version"),
        })  # fmt: skip
    return gpus


def parse_matrix(text):
    """Rows GPU0, GPU1, ... of a table that `nvidia-smi topo` prints, each cut to as many words as there are GPUs."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    rows = [line.split()[1:] for line in plain.splitlines() if re.match(r"\s*GPU\d+\s+\S", line)]
    rows = [row for row in rows if not row[0].startswith("GPU")]
    return [row[: len(rows)] for row in rows]


def all_peers(matrix):
    """Whether every pair reports peer access; None without a matrix of two or more."""
    if len(matrix) < 2:
        return None
    return all(word == "OK" for i, row in enumerate(matrix) for j, word in enumerate(row) if i != j)


def read_driver(sysfs, proc):
    """The driver's module on disk and in the kernel, and its userspace; whether the modules are the open ones."""
    disk, _, code = run("modinfo", "-F", "version", "nvidia")
    licence = run("modinfo", "-F", "license", "nvidia")[0].strip()
    module = disk.strip() if code == 0 and disk.strip() else None
    loaded = text_of(sysfs / "module/nvidia/version")
    banner = text_of(proc / "driver/nvidia/version") or ""
    opened = "Open Kernel Module" in banner if banner else ("MIT" in licence if licence else None)
    said, error, code = run("nvidia-smi", "--version")
    found = re.search(r"NVIDIA-SMI version\s*:\s*([\d.]+)", said)
    libraries = sorted(Path("/usr/lib/x86_64-linux-gnu").glob("libcuda.so.*.*"))
    userspace = found[1] if found else (libraries[-1].name.removeprefix("libcuda.so.") if libraries else None)
    return {
        "version": loaded or module,
        "module_version": module,
        "loaded_version": loaded,
        "userspace_version": userspace,
        "open_modules": opened,
        "persistence": None,
        "error": None if code in {0, None} else (said + error).strip()[:400],
    }


def read_nvidia(sysfs, proc):
    """Everything that NVIDIA's tools know."""
    driver = read_driver(sysfs, proc)
    csv, error, code = run("nvidia-smi", f"--query-gpu={','.join(_GPU_FIELDS)}", "--format=csv,noheader,nounits")
    gpus = parse_gpus(csv) if code == 0 else []
    if code not in {0, None}:
        driver["error"] = (csv + error).strip()[:400]
    for gpu in gpus:
        gpu |= link_of(sysfs, gpu["pci_address"] or "none")
        driver["userspace_version"] = driver["userspace_version"] or gpu["driver_version"]
        del gpu["driver_version"]
    if gpus:
        driver["persistence"] = all(gpu.pop("persistence") for gpu in gpus)
    topology = parse_matrix(run("nvidia-smi", "topo", "-m")[0]) if gpus else []
    peers = parse_matrix(run("nvidia-smi", "topo", "-p2p", "r")[0]) if gpus else []
    absent = driver["version"] is None and driver["userspace_version"] is None
    return {
        "gpus": gpus if code == 0 else None,
        "driver": None if absent else driver,
        "topology": topology,
        "p2p": all_peers(peers),
        "p2p_matrix": peers,
    }


def read_container():
    """How containers reach GPUs here: by CDI, by the older runtime, or not at all."""
    version, _, code = run("docker", "version", "--format", "{{.Server.Version}}")
    devices = run("nvidia-ctk", "cdi", "list")[0].split()
    devices = [word for word in devices if word.startswith("nvidia.com/")]
    runtimes = run("docker", "info", "--format", "{{json .Runtimes}}")[0] if code == 0 else ""
    kind = "cdi" if devices else ("nvidia" if '"nvidia"' in runtimes else "none")
    return {"runtime": kind if code == 0 else "none", "engine_version": version.strip() or None,
            "cdi_devices": devices, "canary_ok": None}  # fmt: skip


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


def parse_packages(text):
    """Packages from `dpkg-query -W` lines of status, name and version; held ones are marked."""
    rows = (line.split("\t") for line in text.splitlines() if line.count("\t") == 2)
    return [
        {"name": name, "version": version, "held": status.startswith("h")}
        for status, name, version in rows
        if status[1:2] == "i" and _PACKAGES.search(name)
    ]


def read_packages():
    """Installed packages that matter here."""
    return parse_packages(run("dpkg-query", "-W", "-f", "${db:Status-Abbrev}\t${Package}\t${Version}\n")[0])


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
        "disk": {"path": str(disk), **room_of(disk), "read_gb_s": None},
        "disks": read_disks(proc),
    }


def read_node(sysfs, proc, disk, key=None):
    """The whole report, but for what has to be measured."""
    facts = read_kernel_facts(sysfs, proc, disk, key)
    nvidia = read_nvidia(sysfs, proc)
    container = read_container()
    rest = {"container": container, "packages": read_packages(), "all_reduce": [], "unmeasured": {}}
    return {**facts, **nvidia, **rest}


def main():
    """Print the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sysfs", type=Path, default=Path("/sys"))
    parser.add_argument("--proc", type=Path, default=Path("/proc"))
    parser.add_argument("--disk", type=Path, default=Path("/var/lib/outrider"))
    parser.add_argument("--key", type=Path)
    parser.add_argument("--kernel-only", action="store_true")
    asked = parser.parse_args()
    read = read_kernel_facts if asked.kernel_only else read_node
    json.dump(read(asked.sysfs, asked.proc, asked.disk, asked.key), sys.stdout, indent=1)


if __name__ == "__main__":
    main()
