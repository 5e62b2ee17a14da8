#!/usr/bin/env python3
"""Measures a node: container canary, timed all-reduces, PCIe links under load, disk. Prints the report as JSON.

    python3 node_measure.py '{"disk": "/var/lib/outrider/models", "all_reduce": {...}, "canary": {...}}'

Lies beside node_facts.py, whose report it completes; the form is described there. Every measurement has a time limit
and leaves a finding when it runs out: a hanging all-reduce is an entry with `timed_out: true`, and its processes are
ended. What could not be measured is named with the reason in `unmeasured`.
"""

import json
import mmap
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import node_facts
import node_kernel

# Size, count, type, redop, root; then time (us), algbw, busbw out of place, wrong, and the same in place.
_ROW = re.compile(r"^\s*(\d+)\s+\d+\s+\w+\s+\w+\s+-?\d+\s+([\d.]+)\s+[\d.]+\s+([\d.]+)\s+(\S+)", re.MULTILINE)


def run_limited(argv, timeout_s, env=None, during=None):
    """Run a program in a session of its own and end all of it when time is up.

    Returns:
        Output (both streams), exit code, and whether time ran out. `during` is called once while it runs.
    """
    try:
        program = subprocess.Popen(
            argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
            env={**os.environ, **(env or {})}, start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        return f"{argv[0]}: {error.strerror}", None, False
    try:
        if during:
            during(program)
        return program.communicate(timeout=timeout_s)[0], program.returncode, False
    except subprocess.TimeoutExpired:
        os.killpg(program.pid, signal.SIGKILL)
        try:
            # A process that hangs in the driver does not end even so; it is left behind and named.
            text = program.communicate(timeout=10)[0]
        except subprocess.TimeoutExpired:
            text = f"process {program.pid} does not end: it hangs in the kernel; the node needs a reboot"
        return text, None, True


def parse_all_reduce(text, ranks):
    """Rows of nccl-tests' table: one entry a size, out of place, bus bandwidth."""
    return [
        {"ranks": ranks, "size_bytes": int(size), "latency_us": float(us), "bandwidth_gb_s": float(busbw),
         "timed_out": False, "error": None if wrong in {"0", "N/A"} else f"{wrong} wrong values"}
        for size, us, busbw, wrong in _ROW.findall(text)
    ]  # fmt: skip


def parse_env(text):
    """Variables of an environment file."""
    lines = (line.strip() for line in text.splitlines())
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


def all_reduces(asked, gpus, during):
    """Timed all-reduces over each number of ranks; what hangs, fails or disagrees is an entry as well.

    Returns:
        Entries, and the reason why nothing was measured, if so.
    """
    binary = asked["binary"]
    if not os.access(binary, os.X_OK):
        return [], f"{binary} is not on the node (nccl_tests_source)"
    if gpus < 2:
        return [], f"{gpus} GPU: nothing to exchange"
    entries = []
    sizes = ["-b", str(asked["min_bytes"]), "-e", str(asked["max_bytes"]), "-f", "2"]
    for ranks in (count for count in asked["ranks"] if count <= gpus):
        text, code, hung = run_limited([binary, *sizes, "-g", str(ranks)], asked["timeout_s"], asked["env"], during)
        rows = parse_all_reduce(text, ranks)
        last = " | ".join(line.strip() for line in text.strip().splitlines()[-3:])[-300:]
        if hung or code != 0 or not rows:
            why = f"no answer within {asked['timeout_s']} s; {last}" if hung else f"exit code {code}; {last}"
            rows.append({"ranks": ranks, "size_bytes": None, "latency_us": None, "bandwidth_gb_s": None,
                         "timed_out": hung, "error": why})  # fmt: skip
        entries += rows
    return entries, None


def canary_argv(asked):
    """The container, with the flags of production: CDI devices, host's shared memory, no privileges."""
    return ["docker", "run", "--rm", "--pull", "missing", "--device", "nvidia.com/gpu=all", "--ipc", "host",
            "--network", "none", "--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges:true",
            "--tmpfs", "/tmp", "--entrypoint", asked["command"][0], asked["image"], *asked["command"][1:]]  # fmt: skip


def canary(asked, gpus):
    """Whether a container with production's flags sees every GPU; None without an image."""
    if not asked["image"]:
        return None
    text, code, hung = run_limited(canary_argv(asked), asked["timeout_s"])
    seen = len(re.findall(r"^GPU \d+", text, re.MULTILINE))
    return {"image": asked["image"], "command": asked["command"], "gpus_seen": seen, "exit_code": code,
            "timed_out": hung, "ok": code == 0 and seen == gpus, "output": text.strip()[-500:]}  # fmt: skip


def largest_file(directory):
    """The largest file below a directory, if there is one."""
    files = [path for path in Path(directory).rglob("*") if path.is_file() and not path.is_symlink()]
    return max(files, key=lambda path: path.stat().st_size, default=None)


def read_speed(path, limit_bytes, block=1 << 24):
    """Sequential read speed of a file in GB/s, past the page cache where the filesystem allows it."""
    flags = os.O_RDONLY | getattr(os, "O_DIRECT", 0)
    try:
        file = os.open(path, flags)
    except OSError:
        # No direct reads here (tmpfs, some overlays): at least let go of what is cached.
        file = os.open(path, os.O_RDONLY)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    buffer = mmap.mmap(-1, block)  # aligned, as direct reads need it
    done, start = 0, time.perf_counter()
    try:
        while done < limit_bytes and (count := os.readv(file, [buffer])):
            done += count
    finally:
        os.close(file)
    seconds = time.perf_counter() - start
    return round(done / 1e9 / seconds, 2) if done and seconds > 0 else None


def disk_speed(directory, limit_bytes):
    """Read speed of the weights' directory, or why it was not measured. A file there is read, none is written."""
    file = largest_file(directory) if limit_bytes else None
    if file is None or file.stat().st_size < 1 << 28:
        return None, f"no file of 256 MiB or more lies in {directory} yet" if limit_bytes else "not asked for"
    return read_speed(file, limit_bytes), None


def watch_links(sysfs, gpus, polls=50):
    """A callback that notes each GPU's fastest link while a program runs, because idle links sleep."""

    def during(program):
        for _ in range(polls):
            for gpu in gpus:
                now = node_facts.link_of(sysfs, gpu["pci_address"] or "none")
                for key in ("pcie_generation", "pcie_width"):
                    gpu[key] = max(gpu[key] or 0, now[key] or 0) or None
            try:
                program.wait(timeout=0.1)
            except subprocess.TimeoutExpired:
                continue
            return

    return during


def measure(asked):
    """The whole report."""
    sysfs, proc = Path(asked.get("sysfs", "/sys")), Path(asked.get("proc", "/proc"))
    report = node_facts.read_node(sysfs, proc, Path(asked["disk"]))
    unmeasured = report["unmeasured"]
    if not asked["measure"]:
        report["unmeasured"] = dict.fromkeys(("disk", "all_reduce", "canary"), "not asked for (node_report_measure)")
        return report
    speed, why = disk_speed(asked["disk"], asked["disk_read_bytes"])
    report["disk"]["read_gb_s"] = speed
    if why:
        unmeasured["disk"] = why
    if not asked["gpu_node"]:
        return report
    gpus = report["gpus"] or []
    report["all_reduce_env"] = asked["all_reduce"]["env"]
    report["all_reduce"], why = all_reduces(asked["all_reduce"], len(gpus), watch_links(sysfs, gpus))
    if why:
        unmeasured["all_reduce"] = why
    seen = canary(asked["canary"], len(gpus))
    if seen is None:
        unmeasured["canary"] = "no image was named (node_report_canary_image)"
    else:
        report["container"] |= {"canary_ok": seen["ok"], "canary": seen}
    return report


def main():
    """Print the JSON."""
    asked = json.loads(sys.argv[1])
    profile = asked["all_reduce"].pop("profile", "") if asked.get("all_reduce") else ""
    if profile:
        asked["all_reduce"]["env"] = parse_env(node_kernel.text_of(profile) or "")
    json.dump(measure(asked), sys.stdout, indent=1)


if __name__ == "__main__":
    main()
