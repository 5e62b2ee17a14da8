"""Make or refresh `.venv` from the locks, with nothing but a Python >= 3.11.

Standard library only: this runs before anything is installed. A stamp of everything that went in makes a
second call return at once.
"""

from __future__ import annotations

import argparse
import ctypes.util
import hashlib
import os
import platform
import subprocess
import sys
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements" / "dev.lock"
TORCH = ROOT / "requirements" / "torch-cpu.txt"
TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
# The wheel that the project is tested with; other Pythons get the same version without this check.
TORCH_HASH = "sha256:6746dbcbeb526eb61330b76b41ff1b4eb848951103a892eeb080dfa2b264667b"
TORCH_HASH_FOR = ((3, 11), "x86_64")


def stamp_of(files: list[Path]) -> str:
    """Fingerprint of what the environment was made from."""
    digest = hashlib.sha256(sys.version.encode())
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()


def pip(python: Path, *args: str, log: Path, check: bool = True) -> bool:
    """Run pip quietly; its output goes to the log, whose tail is shown on failure."""
    with log.open("a") as out:
        code = subprocess.run(
            [python, "-m", "pip", "--disable-pip-version-check", "install", *args],
            stdout=out,
            stderr=subprocess.STDOUT,
            check=False,
        ).returncode
    if code and check:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
        sys.exit(f"pip install {' '.join(args)} failed:\n{tail}\nWhole log: {log}")
    return code == 0


def install_torch(python: Path, log: Path) -> None:
    """Install the CPU build: what pip is configured for first, PyTorch's own index only if that fails."""
    requirement = TORCH.read_text().strip()
    args = ["--no-deps", requirement]
    if (sys.version_info[:2], platform.machine()) == TORCH_HASH_FOR:
        pinned = log.parent / "torch-hashed.txt"
        pinned.write_text(f"{requirement} --hash={TORCH_HASH}\n")
        args = ["--no-deps", "--require-hashes", "-r", str(pinned)]
    if not pip(python, *args, log=log, check=False):
        pip(python, "--index-url", TORCH_CPU_INDEX, *args, log=log)


def main() -> None:
    """Create the environment, or say that it is up to date."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--venv", type=Path, default=ROOT / ".venv")
    parser.add_argument("--lock", type=Path, default=LOCK)
    parser.add_argument("--without-outrider", action="store_true", help="an interpreter that finds it by PYTHONPATH")
    options = parser.parse_args()
    target: Path = options.venv
    lock: Path = options.lock
    if sys.version_info < (3, 11):
        sys.exit(f"Python >= 3.11 is needed, this is {platform.python_version()}; set PYTHON=python3.12 or newer")
    python, log, stamp_file = target / "bin" / "python", target / "install.log", target / "outrider.stamp"
    stamp = stamp_of([lock, TORCH, ROOT / "pyproject.toml", Path(__file__)])
    if stamp_file.is_file() and stamp_file.read_text() == stamp and python.exists():
        return

    began = time.monotonic()

    def step(number: int, text: str) -> None:
        print(f"[{number}/4] {text} ({time.monotonic() - began:.0f} s)", flush=True)

    step(1, f"virtual environment in {os.path.relpath(target)}")
    stamp_file.unlink(missing_ok=True)
    if not python.exists():
        venv.create(target, with_pip=True)
    log.write_text("")
    step(2, f"{lock.read_text().count('==')} locked packages, up to 0.7 GB: one to five minutes")
    pip(python, "--no-deps", "--require-hashes", "-r", str(lock), log=log)
    step(3, "PyTorch, CPU build")
    install_torch(python, log)
    if not options.without_outrider:
        step(4, "outrider itself")
        pip(python, "--no-deps", "--no-build-isolation", "-e", str(ROOT), log=log)
    if ctypes.util.find_library("numa") is None:
        print("the CPU engine needs libnuma, which this machine lacks (Debian, Ubuntu: apt-get install libnuma1)")
    stamp_file.write_text(stamp)
    print(f"environment ready ({time.monotonic() - began:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
