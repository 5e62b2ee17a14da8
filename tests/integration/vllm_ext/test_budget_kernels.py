"""The expert budget's Triton kernels, interpreted, route as the tensor operations that they replace."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.interpreted_triton import environment

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ROOT = Path(__file__).resolve().parents[3]


def test_no_shape_is_routed_differently() -> None:
    env = {**os.environ, **environment()}
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), env["PYTHONPATH"]])
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "budget" / "kernels.py")],
        env=env, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "64 cases, 0 differ\n"), done.stderr[-2000:]
