"""Facts about the machine and the code, gathered once a campaign."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any

import psutil

from outrider import __version__


def outrider_facts() -> dict[str, str | None]:
    """Version, and the commit with a mark for local changes if this is a checkout."""
    root = Path(__file__).resolve().parents[3]
    commit = _output("git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12")
    return {"version": __version__, "commit": commit if (root / ".git").exists() else None}


def host_facts() -> dict[str, Any]:
    """The machine as far as it bears on speed; no host name, no addresses."""
    return {
        "machine": platform.machine(),
        "kernel": platform.release(),
        "cpu": _cpu_model(),
        "cores": psutil.cpu_count(logical=True),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "python": platform.python_version(),
        "load_1min": round(os.getloadavg()[0], 2),
    }


def gpu_facts() -> tuple[tuple[str, ...], str | None]:
    """Names with memory of the GPUs, and the driver version; empty without NVIDIA's tool."""
    listing = _output("nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader")
    rows = [[part.strip() for part in line.split(",")] for line in (listing or "").splitlines()]
    rows = [row for row in rows if len(row) == 3]
    return tuple(f"{name}, {memory}" for name, memory, _ in rows), rows[0][2] if rows else None


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")


def _output(*argv: str) -> str | None:
    if shutil.which(argv[0]) is None:
        return None
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=20)
    return done.stdout.strip() if done.returncode == 0 else None
