"""The wheel that unpacks a bundle's wheels on the node: the real one, fetched once by its lock."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from outrider.bundle.node_packages import read_lock_entries, wheels_of
from outrider.images.wheels import WheelSet, gather

ROOT = Path(__file__).resolve().parents[3]
PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"


@pytest.fixture(scope="session")
def installer_wheel() -> Path:
    lock, out = "requirements/installer.lock", ROOT / "build" / "wheels" / "installer"
    gather(WheelSet((lock,), PYTHON), ROOT, out)
    (wheel,) = wheels_of(read_lock_entries((ROOT / lock).read_text()), out)
    return wheel
