#!/usr/bin/env python3
"""Reads what a node is, and prints it as JSON. Changes nothing; needs Python's standard library only.

    python3 node_facts.py [--sysfs /sys] [--proc /proc] [--disk DIR]

Lies beside node_kernel.py, whose part it completes; `node_measure.py` adds what has to be measured. A value that
cannot be read is null, which means unknown, never "no".

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
    disk           path, size_gb, free_gb, used_gb (files below path; 1e9 bytes), read_gb_s: null until measured
    disks          list of mount, device, filesystem, size_gb, free_gb
    packages       list of name, version, held: of driver, CUDA, NCCL, containers, exporters, kernel
    all_reduce     list of ranks, size_bytes, latency_us, bandwidth_gb_s (bus, 1e9 bytes/s), timed_out, error; empty
                   until measured; all_reduce_env: what NCCL was told;  unmeasured: reason by name of what was not

A GPU's link sleeps when idle: pcie_generation of an idle GPU is lower than under load, so node_measure.py reads it
again while the GPUs work. Fields that `outrider preflight --node` reads keep the names that it knows
(docs/preflight.md).
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

from node_kernel import number, read_kernel_facts, run, text_of

_GPU_FIELDS = (
    "index", "uuid", "name", "memory.total", "compute_cap", "pci.bus_id", "persistence_mode", "driver_version",
)  # fmt: skip
_PACKAGES = re.compile(
    r"nvidia|^cuda|nccl|^docker|^containerd|^datacenter-gpu|dcgm|^prometheus-node|^linux-(image|headers)|^libcuda|nouveau"
)


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
        gpu.update(link_of(sysfs, gpu["pci_address"] or "none"))
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


def read_node(sysfs, proc, disk):
    """The whole report, but for what has to be measured."""
    facts = {**read_kernel_facts(sysfs, proc, disk), **read_nvidia(sysfs, proc)}
    return {**facts, "container": read_container(), "packages": read_packages(), "all_reduce": [], "unmeasured": {}}


def main():
    """Print the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sysfs", type=Path, default=Path("/sys"))
    parser.add_argument("--proc", type=Path, default=Path("/proc"))
    parser.add_argument("--disk", type=Path, default=Path("/var/lib/outrider"))
    asked = parser.parse_args()
    json.dump(read_node(asked.sysfs, asked.proc, asked.disk), sys.stdout, indent=1)


if __name__ == "__main__":
    main()
