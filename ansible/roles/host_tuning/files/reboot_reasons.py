#!/usr/bin/env python3
"""Prints, as JSON, why a node has to boot anew, from its state alone; nothing has to be remembered by who changed it.

    python3 reboot_reasons.py [--word iommu=off]... [--uvm-hmm-off] [--gpu] [--required] [--marker FILE]

    {"boot_id": "...", "reasons": ["..."], "repeated": ["..."]}

reasons: what only a boot puts right. repeated: those for which a boot was already made, by the marker; to boot again
for them would be a loop.
"""

import argparse
import json
import subprocess
from pathlib import Path


def text_of(path):
    """A file's text without white space around it; empty if it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def reasons(wanted, sysfs, cmdline, module_version):
    """Why a boot is needed.

    Args:
        wanted: what was asked for: `words`, `uvm_hmm_off`, `gpu`, `required` (the file, if packages may ask).
        sysfs: root of sysfs.
        cmdline: words of the running kernel's command line.
        module_version: version of the NVIDIA module on disk, empty if there is none.
    """
    found = [f"the kernel's command line lacks {word}" for word in wanted["words"] if word not in cmdline]
    loaded = text_of(sysfs / "module/nvidia/version")
    if wanted["gpu"] and module_version and (sysfs / "module/nouveau").is_dir():
        found.append("nouveau has the GPUs")
    if loaded and module_version and loaded != module_version:
        found.append(f"the loaded NVIDIA module is {loaded}, installed is {module_version}")
    hmm = text_of(sysfs / "module/nvidia_uvm/parameters/uvm_disable_hmm")
    if wanted["uvm_hmm_off"] and hmm in {"N", "0"}:
        found.append("nvidia_uvm was loaded without uvm_disable_hmm=1")
    if wanted["required"] and Path(wanted["required"]).exists():
        packages = sorted(set(text_of(f"{wanted['required']}.pkgs").split()))
        found.append(f"packages ask for it: {', '.join(packages) or 'unnamed'}")
    return found


def repeated(found, boot_id, marker):
    """Reasons for which the node was booted before and which that boot did not put right."""
    if not marker or marker.get("boot_id") == boot_id:
        return []
    return [reason for reason in found if reason in marker.get("reasons", [])]


def main():
    """Print the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--word", action="append", default=[])
    parser.add_argument("--uvm-hmm-off", action="store_true")
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--required")
    parser.add_argument("--marker", type=Path)
    parser.add_argument("--sysfs", type=Path, default=Path("/sys"))
    parser.add_argument("--cmdline", type=Path, default=Path("/proc/cmdline"))
    asked = parser.parse_args()
    try:
        done = subprocess.run(["modinfo", "-F", "version", "nvidia"], capture_output=True, text=True, check=False)
        version = done.stdout.strip() if done.returncode == 0 else ""
    except FileNotFoundError:
        version = ""
    wanted = {"words": asked.word, "uvm_hmm_off": asked.uvm_hmm_off, "gpu": asked.gpu, "required": asked.required}
    boot_id = text_of("/proc/sys/kernel/random/boot_id")
    found = reasons(wanted, asked.sysfs, text_of(asked.cmdline).split(), version)
    marker = json.loads(text_of(asked.marker) or "null") if asked.marker else None
    print(json.dumps({"boot_id": boot_id, "reasons": found, "repeated": repeated(found, boot_id, marker)}))


if __name__ == "__main__":
    main()
