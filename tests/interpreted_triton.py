"""Triton without a GPU: its interpreter, which runs kernels as NumPy on CPU tensors, slowly and exactly.

vLLM's V2 model runner and our own kernels are Triton. vLLM uses it on a CPU only where it finds a `cpu` backend, which
PyPI's Triton lacks; the one made here says that it is there and never compiles anything, because with
TRITON_INTERPRET=1 no kernel reaches a compiler. Nothing measured with it is a speed.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "requirements" / "interpreted-triton.lock"
_COMPILER = """
from triton.backends.compiler import BaseBackend


class Interpreted(BaseBackend):
    @staticmethod
    def supports_target(target):
        return target.backend == "cpu"

    def hash(self):
        return "interpreted"

    def parse_options(self, options):
        raise NotImplementedError

    def add_stages(self, stages, options, language=None):
        raise NotImplementedError

    def load_dialects(self, context):
        raise NotImplementedError

    def get_module_map(self):
        raise NotImplementedError
"""
_DRIVER = """
import torch
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase


class Interpreted(DriverBase):
    @staticmethod
    def is_active():
        return True

    def map_python_to_cpp_type(self, ty):
        return ty

    def get_current_target(self):
        return GPUTarget("cpu", 0, 1)

    def get_active_torch_device(self):
        return torch.device("cpu")

    def get_benchmarker(self):
        raise NotImplementedError
"""


def environment() -> dict[str, str]:
    """Variables under which a Python of this project's environment runs Triton kernels; installs Triton once."""
    return {"PYTHONPATH": str(site()), "TRITON_INTERPRET": "1"}


def site() -> Path:
    """Where that Triton lies, below build/; two callers wait for each other.

    Raises:
        RuntimeError: it cannot be installed, with what pip said.
    """
    place = ROOT / "build" / f"interpreted-triton-{sys.version_info.major}.{sys.version_info.minor}"
    place.parent.mkdir(exist_ok=True)
    with place.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.is_dir():
            scratch = place.with_suffix(f".{os.getpid()}")
            command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "-q", "--no-deps"]
            command += ["--no-compile", "--require-hashes", "--target", str(scratch), "-r", str(LOCK)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                shutil.rmtree(scratch, ignore_errors=True)
                raise RuntimeError(f"{' '.join(command)}\n{done.stderr[-2000:]}")
            _add_backend(scratch)
            scratch.rename(place)
    return place


def _add_backend(where: Path) -> None:
    backend = where / "triton" / "backends" / "cpu"
    backend.mkdir()
    for name, text in (("__init__", ""), ("compiler", _COMPILER), ("driver", _DRIVER)):
        (backend / f"{name}.py").write_text(text, encoding="utf-8")
    (points,) = where.glob("triton-*.dist-info/entry_points.txt")
    group = "[triton.backends]\n"
    text = points.read_text(encoding="utf-8")
    points.write_text(text.replace(group, f"{group}cpu = triton.backends.cpu\n", 1), encoding="utf-8")
