"""Whether the GPUs have room again after an engine was stopped, and who holds it if not."""

from __future__ import annotations

import shutil
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

from outrider.errors import RuntimeStateError

if TYPE_CHECKING:
    from collections.abc import Callable

    from outrider.stack import Stack

_DEFAULT_UTILIZATION = 0.9
_WAIT_S = 60.0
_LOOK_AGAIN_S = 0.5
_GPU_QUERY = ("--query-gpu=index,memory.used,memory.total", "--format=csv,noheader,nounits")
_APP_QUERY = ("--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits")


@dataclass(frozen=True, slots=True)
class GpuMemory:
    """One GPU's memory, MiB."""

    index: int
    used_mib: int
    total_mib: int


def parse_gpus(text: str) -> list[GpuMemory]:
    """Read `nvidia-smi --query-gpu=index,memory.used,memory.total`; a GPU that does not say is left out."""
    found = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) == 3 and all(cell.isdigit() for cell in cells):
            found.append(GpuMemory(*map(int, cells)))
    return found


def parse_holders(text: str) -> dict[int, int]:
    """Read `nvidia-smi --query-compute-apps=pid,used_memory`: PID to MiB (0 where it does not say)."""
    found: dict[int, int] = {}
    for line in text.splitlines():
        pid, _, used = (cell.strip() for cell in line.partition(","))
        if pid.isdigit():
            found[int(pid)] = found.get(int(pid), 0) + (int(used) if used.isdigit() else 0)
    return found


def short_of_room(gpus: list[GpuMemory], need: int, utilization: float) -> list[GpuMemory]:
    """Of the first `need` GPUs, those without room for an engine that takes this share of the memory."""
    return [gpu for gpu in gpus[:need] if gpu.total_mib - gpu.used_mib < utilization * gpu.total_mib]


def _smi(*query: str) -> str:
    program = shutil.which("nvidia-smi")
    if program is None:
        raise RuntimeStateError(
            "GPU memory cannot be looked at", evidence="no nvidia-smi", next_step="install the driver's utilities"
        )
    done = subprocess.run([program, *query], capture_output=True, text=True, check=False, timeout=60)
    if done.returncode:
        raise RuntimeStateError("nvidia-smi failed", evidence=(done.stdout + done.stderr).strip()[-300:])
    return done.stdout


def _name(pid: int, mib: int) -> str:
    try:
        process = psutil.Process(pid)
        return f"pid {pid} of user {process.username()} holds {mib} MiB: {' '.join(process.cmdline())[:160]}"
    except psutil.Error:
        return f"pid {pid} holds {mib} MiB (not visible from here)"


def wait_until_free(stack: Stack, *, wait_s: float = _WAIT_S, query: Callable[..., str] = _smi) -> None:
    """Wait until the stack's GPUs have room for its engine; nothing to do without GPUs.

    Raises:
        RuntimeStateError: there are fewer GPUs than it needs, or they have no room; names the processes that hold it.
    """
    if stack.engine.build != "cuda":
        return
    need = stack.parallel.tensor * stack.parallel.pipeline * stack.parallel.data
    share = stack.memory.gpu_utilization or _DEFAULT_UTILIZATION
    deadline = time.monotonic() + wait_s
    gpus = parse_gpus(query(*_GPU_QUERY))
    if len(gpus) < need:
        raise RuntimeStateError(
            f"{stack.name} needs {need} GPUs, this machine has {len(gpus)}",
            evidence=f"parallel sizes {stack.parallel.tensor} x {stack.parallel.pipeline} x {stack.parallel.data}; "
            f"nvidia-smi lists {', '.join(f'GPU {gpu.index}' for gpu in gpus) or 'none'}",
            next_step="lower parallel.tensor, or serve where there are enough; `dmesg` tells of one that was lost",
        )
    while short := short_of_room(gpus, need, share):
        if time.monotonic() > deadline:
            holders = parse_holders(query(*_APP_QUERY))
            seen = [f"GPU {gpu.index}: {gpu.used_mib} of {gpu.total_mib} MiB are in use" for gpu in short]
            raise RuntimeStateError(
                f"device memory is not free: an engine of {stack.name} takes {share:.0%} of each GPU",
                evidence="\n".join(seen + [_name(pid, mib) for pid, mib in sorted(holders.items())]),
                next_step="end these processes by their PID, or lower memory.gpu_utilization",
            )
        time.sleep(_LOOK_AGAIN_S)
        gpus = parse_gpus(query(*_GPU_QUERY))
