"""`outrider serve` and `render`: what is refused and what is shown before anything is started."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from outrider.cli import app
from outrider.errors import RuntimeStateError
from outrider.runtime.choice import Kind, Settings, runtime_for
from outrider.runtime.commands import _key
from outrider.runtime.local import LocalRuntime

ROOT = Path(__file__).resolve().parents[3]


def test_nothing_but_loopback_is_listened_on_without_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VLLM_API_KEY", raising=False)
    for kind in Kind:
        with pytest.raises(RuntimeStateError, match=r"without an API key would listen on 0\.0\.0\.0"):
            _key(kind=kind, settings=Settings("0.0.0.0"))
        assert _key(kind=kind, settings=Settings()) is None
    monkeypatch.setenv("VLLM_API_KEY", "k")
    assert _key(kind=Kind.LOCAL, settings=Settings("0.0.0.0")) == "k"
    with pytest.raises(RuntimeStateError, match="without an API key"):
        _key(kind=Kind.COMPOSE, settings=Settings("0.0.0.0"))
    with pytest.raises(RuntimeStateError, match="from the environment"):
        _key(kind=Kind.LOCAL, settings=Settings(api_key_file=tmp_path / "key"))


def test_local_stays_the_runtime_that_is_used_unless_told_otherwise() -> None:
    assert isinstance(runtime_for(Kind.LOCAL), LocalRuntime)
    assert [kind.value for kind in Kind] == ["local", "compose", "systemd"]


def test_render_prints_a_project_of_one_variant_or_of_all_and_a_unit() -> None:
    runner = CliRunner()
    one = runner.invoke(app, ["render", "smollm2-cpu", "ngram", "--as", "compose"])
    assert one.exit_code == 0
    assert "  ngram:\n" in one.output
    assert "  baseline:\n" not in one.output
    every = runner.invoke(app, ["render", "smollm2-cpu", "all", "--as", "compose"])
    assert every.output == (ROOT / "compose" / "compose.yaml").read_text()
    unit = runner.invoke(app, ["render", "smollm2-cpu", "ngram", "--as", "systemd", "--port", "8123"])
    assert "[Service]" in unit.output
    assert "--port 8123" in unit.output
