"""Fixtures that many tests share: the embedded model, and Outrider's directories kept out of the user's."""

from __future__ import annotations

import os
import shutil
import signal
from typing import TYPE_CHECKING

import hypothesis
import pytest

from outrider.model_store import prepare
from outrider.stack import find_stack

if TYPE_CHECKING:
    from pathlib import Path


def pytest_configure() -> None:
    """Take Ctrl-C back where a background shell has it ignored: children that tests interrupt would ignore it too."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # How long an example takes says something about the machine, not about the code.
    hypothesis.settings.register_profile(
        "any machine", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
    )
    hypothesis.settings.load_profile("any machine")


@pytest.fixture(scope="session")
def smollm2_dir() -> Path:
    """The embedded target's files, made and checked; shared with `make demo` through the cache."""
    directory = prepare(find_stack("smollm2-cpu"))
    assert directory is not None
    return directory


def _program(*names: str, package: str) -> str:
    """Path of a program; on CI a missing one is a failure, elsewhere a skip."""
    for name in names:
        if found := shutil.which(name):
            return found
    missing = f"no {names[0]} on this machine (Debian: apt-get install {package})"
    if os.environ.get("CI"):
        pytest.fail(missing)
    pytest.skip(missing)


@pytest.fixture(scope="session")
def chromium() -> str:
    return _program("chromium", "chromium-browser", "google-chrome", package="chromium")


@pytest.fixture(scope="session")
def chromedriver() -> str:
    return _program("chromedriver", package="chromium-driver")


@pytest.fixture
def own_dirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Results and engine state under a directory of this test."""
    monkeypatch.setenv("OUTRIDER_RESULTS", str(tmp_path / "results"))
    monkeypatch.setenv("OUTRIDER_STATE", str(tmp_path / "state"))
    return tmp_path


@pytest.fixture(scope="session")
def prometheus_program() -> str:
    return _program("prometheus", package="prometheus")


@pytest.fixture(scope="session")
def promtool() -> str:
    return _program("promtool", package="prometheus")


@pytest.fixture(scope="session")
def alertmanager_program() -> str:
    return _program("prometheus-alertmanager", "alertmanager", package="prometheus-alertmanager")


@pytest.fixture(scope="session")
def amtool() -> str:
    return _program("amtool", package="prometheus-alertmanager")


@pytest.fixture(scope="session")
def node_exporter_program() -> str:
    return _program("prometheus-node-exporter", "node_exporter", package="prometheus-node-exporter")
