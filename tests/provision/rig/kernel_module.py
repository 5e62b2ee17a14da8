"""Kernel modules of the stand-in driver: compiled once against the node's kernel, then stamped with each version."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

_SOURCES = Path(__file__).parent / "stand_ins"
_PLACEHOLDER = b"VERSION@@@"


def compile_modules(directory: Path, kernel: str, *, proprietary: bool = False) -> Path:
    """Compile `nvidia.ko` and `nvidia-uvm.ko` for a kernel release (needs its headers); gives their directory."""
    headers = Path("/usr/src") / f"linux-headers-{kernel}"
    if not headers.is_dir():
        raise RuntimeError(f"the node's kernel is {kernel}, but {headers} is not here: install linux-headers-{kernel}")
    directory.mkdir(parents=True)
    for name in ("nvidia.c", "nvidia-uvm.c"):
        shutil.copy(_SOURCES / name, directory)
    (directory / "Kbuild").write_text(
        "obj-m := nvidia.o nvidia-uvm.o\n" + ("ccflags-y := -DPROPRIETARY\n" if proprietary else "")
    )
    done = subprocess.run(
        ["make", "-s", "-C", str(headers), f"M={directory}", "modules"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"the stand-in module does not compile:\n{done.stderr[-3000:]}")
    for name in ("nvidia.ko", "nvidia-uvm.ko"):
        subprocess.run(["strip", "--strip-debug", str(directory / name)], check=True)
    return directory


def stamped(module: Path, version: str) -> bytes:
    """The module's bytes with a version, of ten characters at most, in place of the placeholder."""
    value = version.encode()
    content = module.read_bytes()
    assert len(value) <= len(_PLACEHOLDER)
    assert _PLACEHOLDER in content
    return content.replace(_PLACEHOLDER, value.ljust(len(_PLACEHOLDER), b"\0"))
