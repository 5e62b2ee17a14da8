"""`outrider load` as a command: exit codes, JSON, files."""

import json
from pathlib import Path

import polars as pl
import pytest
import typer
from typer.testing import CliRunner

from outrider.load import LoadResult
from outrider.load.commands import exit_code, load_command, verify_client_command

pytestmark = pytest.mark.quiet

app = typer.Typer()
app.command("load")(load_command)
app.command("verify-client")(verify_client_command)


def invoke(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def base(replay, prompts_file: Path) -> tuple[object, ...]:
    return ("load", replay.url, "--prompts", prompts_file)


def test_json_on_standard_output_stands_alone(base: tuple[object, ...]) -> None:
    code, out, _ = invoke(*base, "--model", "chunks=8,gap=0.01", "--concurrency", 2, "--requests", 8, "--json", "-")
    data = json.loads(out)
    result = LoadResult.model_validate(data)
    assert result.outcomes == {"length": 8}
    assert code == exit_code(result)
    for name in ("ttft_s", "tpot_s", "icl_s", "e2e_s"):
        assert data[name].keys() >= {"mean", "p50", "p90", "p95", "p99"}
    assert data.keys() >= {"tokens", "chunks", "tokens_per_chunk", "throughput_tok_s", "outcomes", "validity"}


def test_the_summary_is_for_people_and_files_are_written(base: tuple[object, ...], tmp_path: Path) -> None:
    _, out, _ = invoke(
        *(*base, "--model", "chunks=8,gap=0.01", "--concurrency", 2, "--requests", 8),
        *("--json", tmp_path / "r.json", "--records", tmp_path / "rows.parquet"),
    )
    assert "TPOT" in out
    assert "8 length" in out
    assert json.loads((tmp_path / "r.json").read_text())["requests"] == 8
    rows = pl.read_parquet(tmp_path / "rows.parquet")
    assert rows.filter(pl.col("phase") == "measured").height == 8
    assert rows["tpot_s"].drop_nulls().len() >= 8


def test_findings_to_read_give_three(base: tuple[object, ...]) -> None:
    code, out, _ = invoke(*base, "--model", "chunks=4,gap=0.01", "--concurrency", 4, "--requests", 5)
    assert code == 3
    assert "window_short" in out


def test_no_measurement_gives_one(base: tuple[object, ...]) -> None:
    code, out, _ = invoke(*base, "--model", "status=404", "--concurrency", 1, "--requests", 2)
    assert code == 1
    assert "no such model" in out


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--concurrency", 1, "--rate", 2),
        ("--rate", 2, "--arrivals", "sometimes"),
        ("--rate", 0, "--requests", 4),
        ("--concurrency", 1, "--endpoint", "images"),
    ],
)
def test_options_that_make_no_sense_give_two(base: tuple[object, ...], options: tuple[object, ...]) -> None:
    assert invoke(*base, "--model", "m", *options)[0] == 2


def test_open_loop_options_reach_the_plan(base: tuple[object, ...]) -> None:
    options = ("--rate", 40, "--arrivals", "gamma", "--burstiness", 2, "--requests", 12, "--warmup", 2, "--json", "-")
    data = json.loads(invoke(*base, "--model", "chunks=4,gap=0.01", *options)[1])
    assert (data["arrivals"], data["rate"], data["requests"]) == ("gamma", 40.0, 12)


def test_both_clients_agree_on_the_same_endpoint(replay) -> None:
    """Needs vLLM: part of the development environment."""
    code, out, errors = invoke(
        *("verify-client", replay.url, "--model", "chunks=30,gap=0.02", "--concurrency", 4, "--requests", 12),
        *("--max-tokens", 30, "--json", "-"),
    )
    assert code == 0, errors
    both = json.loads(out)
    assert both["outrider"]["requests"] == both["vllm_bench"]["requests"] == 12
    assert both["outrider"]["tokens"] == both["vllm_bench"]["tokens"] == 360
    assert abs(both["difference"]["tpot_mean_s"]) < 0.05
