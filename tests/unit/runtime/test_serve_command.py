"""`outrider serve` and `render`: what is refused and what is shown before anything is started."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from outrider.cli import app
from outrider.errors import RuntimeStateError
from outrider.runtime.announced import Announced
from outrider.runtime.choice import Kind, Settings, runtime_for
from outrider.runtime.commands import _key
from outrider.runtime.local import LocalRuntime
from outrider.stack import find_stack

CPU = find_stack("smollm2-cpu")
ROOT = Path(__file__).resolve().parents[3]


def test_nothing_but_loopback_is_listened_on_without_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VLLM_API_KEY", raising=False)
    for kind in Kind:
        with pytest.raises(RuntimeStateError, match=r"without an API key would listen on 0\.0\.0\.0"):
            _key(CPU, "ngram", kind=kind, settings=Settings("0.0.0.0"))
        assert _key(CPU, "ngram", kind=kind, settings=Settings()) is None
    monkeypatch.setenv("VLLM_API_KEY", "k")
    assert _key(CPU, "ngram", kind=Kind.LOCAL, settings=Settings("0.0.0.0")) == "k"
    with pytest.raises(RuntimeStateError, match="without an API key"):
        _key(CPU, "ngram", kind=Kind.COMPOSE, settings=Settings("0.0.0.0"))
    with pytest.raises(RuntimeStateError, match="from the environment"):
        _key(CPU, "ngram", kind=Kind.LOCAL, settings=Settings(api_key_file=tmp_path / "key"))


def test_an_engine_that_takes_its_key_on_the_command_line_is_served_on_loopback_only(tmp_path: Path) -> None:
    kimi = find_stack("kimi-k2.5-rtx6000x8")
    assert _key(kimi, "eagle3-sglang", kind=Kind.LOCAL, settings=Settings()) is None
    for settings in (Settings("0.0.0.0"), Settings(api_key_file=tmp_path / "key")):
        with pytest.raises(RuntimeStateError, match="on its command line only"):
            _key(kimi, "eagle3-sglang", kind=Kind.COMPOSE, settings=settings)


def test_local_stays_the_runtime_that_is_used_unless_told_otherwise() -> None:
    chosen = runtime_for(Kind.LOCAL)
    assert isinstance(chosen, Announced)
    assert isinstance(chosen._runtime, LocalRuntime)
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
