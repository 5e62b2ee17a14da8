"""A live profile of the real CPU engine, from serving to shares that feed the model."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from outrider.cli import app
from outrider.predict.session import open_session
from outrider.predict.shares import read_shares
from outrider.runtime.local import LocalRuntime
from outrider.stack import find_stack

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.quiet, pytest.mark.timeout(900)]


@pytest.mark.usefixtures("smollm2_dir")
def test_a_served_variant_is_recorded_and_classified(own_dirs: Path) -> None:
    out = own_dirs / "profile.json"
    words = ["profile", "capture", "smollm2-cpu", "--steps", "8", "--max-tokens", "40", "--json", str(out)]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    data = json.loads(out.read_text(encoding="utf-8"))
    assert data["steps"] == 8
    assert data["shares"]["unknown"] < 0.10
    assert data["shares"]["other_gemm"] > 0.2
    assert sum(data["shares"].values()) == pytest.approx(1)
    fitted = open_session(find_stack("smollm2-cpu"), shares=read_shares(out)).fit
    assert fitted.source == "decode profile"
    states = {status.state.value for status in LocalRuntime(own_dirs / "state").list()}
    assert "running" not in states
