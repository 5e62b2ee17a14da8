"""Fixtures that many tests share: the embedded model, and Outrider's directories kept out of the user's."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from outrider.model_store import prepare
from outrider.stack import find_stack


@pytest.fixture(scope="session")
def smollm2_dir() -> Path:
    """The embedded target's files, made and checked; shared with `make demo` through the cache."""
    directory = prepare(find_stack("smollm2-cpu"))
    assert directory is not None
    return directory


@pytest.fixture(scope="session")
def chromium() -> str:
    """Path of a Chromium; on CI a missing one is a failure."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return found
    if os.environ.get("CI"):
        pytest.fail("no Chromium: .ci/run installs it")
    pytest.skip("no Chromium on this machine (Debian: apt-get install chromium chromium-driver)")


@pytest.fixture
def own_dirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Results and engine state under a directory of this test."""
    monkeypatch.setenv("OUTRIDER_RESULTS", str(tmp_path / "results"))
    monkeypatch.setenv("OUTRIDER_STATE", str(tmp_path / "state"))
    return tmp_path
