"""The command line: what is printed where, and the exit codes that scripts rely on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.campaign.made import cell, record
from typer.testing import CliRunner

from outrider import __version__
from outrider.campaign.plan import CampaignPlan
from outrider.campaign.store import RunStore
from outrider.cli import app
from outrider.errors import CampaignError, StackError
from outrider.stack import find_stack

RUN = CliRunner()
CPU = find_stack("smollm2-cpu")


def outrider(*argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "outrider.cli", *argv], capture_output=True, text=True, check=False)


def measured_run(directory: Path, *, fail: bool = False) -> RunStore:
    store = RunStore(directory / "results" / "made")
    plan = CampaignPlan.for_stack(CPU)
    (store.directory / "plan.json").write_text(plan.model_dump_json(), encoding="utf-8")
    for variant, tpot_s in (("baseline", 0.03), ("ngram", 0.02)):
        al = None if variant == "baseline" else 1.7
        records = [record(i, tpot_s=tpot_s * (1 + i / 100)) for i in range(8)]
        store.append(cell(variant, tpot_s=tpot_s, al=al), records)
    if fail:
        store.append(cell("eagle3", error="the engine died"), [])
    return store


def test_version() -> None:
    assert RUN.invoke(app, ["--version"]).output.strip() == __version__


def test_stacks_lists_every_shipped_stack() -> None:
    result = RUN.invoke(app, ["stacks"], env={"COLUMNS": "200"})
    assert result.exit_code == 0
    assert "smollm2-cpu" in result.output
    assert "kimi-k2.5-rtx6000x8" in result.output


def test_render_argv_is_one_line_that_a_shell_can_run() -> None:
    result = RUN.invoke(app, ["render", "kimi-k2.5-rtx6000x8", "eagle3", "--port", "9000"])
    assert result.exit_code == 0
    assert len(result.output.splitlines()) == 1
    assert result.output.startswith("vllm serve moonshotai/Kimi-K2.5 --host 127.0.0.1 --port 9000")
    assert '\'{"method":"eagle3"' in result.output


def test_render_env_can_be_sourced_and_json_can_be_read() -> None:
    env = RUN.invoke(app, ["render", "kimi-k2.5-rtx6000x8", "baseline", "--as", "env"]).output
    assert "NCCL_P2P_LEVEL=SYS" in env.splitlines()
    data = json.loads(RUN.invoke(app, ["render", "smollm2-cpu", "eagle3", "--as", "json"]).output)
    assert data["stack_digest"] == CPU.digest()
    assert data["env"]["VLLM_CPU_KVCACHE_SPACE"] == "1"
    assert "models/smollm2-135m-eagle3" in data["argv"][-1]


def test_wrong_usage_is_exit_code_2() -> None:
    assert RUN.invoke(app, ["render"]).exit_code == 2
    assert RUN.invoke(app, ["render", "smollm2-cpu", "ngram", "--as", "yaml"]).exit_code == 2


@pytest.mark.parametrize(
    ("argv", "kind", "words"),
    [
        (["render", "smollm2-cpu", "n-gram"], StackError, "did you mean 'ngram'"),
        (["render", "smollm-cpu", "ngram"], StackError, "did you mean 'smollm2-cpu'"),
        (["campaign", "smollm2-cpu", "--workload", "chatt", "--plan"], CampaignError, "did you mean 'chat'"),
        (["campaign", "smollm2-cpu", "--run", "../x"], CampaignError, "no name for a run"),
        (["report", "never"], CampaignError, "there is no run"),
    ],
)
def test_mistakes_raise_errors_that_name_what_was_meant(
    own_dirs: Path, argv: list[str], kind: type[Exception], words: str
) -> None:
    result = RUN.invoke(app, argv)
    assert isinstance(result.exception, kind)
    assert words in str(result.exception)


def test_an_error_is_three_lines_on_standard_error_and_exit_code_1() -> None:
    done = outrider("render", "smollm2-cpu", "eagel3")
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.splitlines()[0] == ("error: stack smollm2-cpu has no variant 'eagel3'; did you mean 'eagle3'?")
    assert "Traceback" not in done.stderr


def test_plan_starts_nothing_and_names_every_cell(own_dirs: Path) -> None:
    result = RUN.invoke(app, ["campaign", "smollm2-cpu", "--plan", "--repeats", "1"])
    assert result.exit_code == 0
    assert result.output.startswith("12 cells; engines side by side: baseline, ngram, eagle3")
    assert "edit.c1.r0.baseline" in result.output
    assert not (own_dirs / "results").exists()


def test_report_prints_only_json_on_standard_output_when_asked(own_dirs: Path) -> None:
    measured_run(own_dirs)
    result = RUN.invoke(app, ["report", "made", "--json", "-"])
    assert result.exit_code == 0
    cells = json.loads(result.stdout)
    assert [c["variant"] for c in cells] == ["baseline", "ngram"]
    assert "1.50" in result.stderr
    assert (own_dirs / "results" / "made" / "report.html").is_file()
    assert (own_dirs / "results" / "made" / "requests.parquet").is_file()


def test_report_fails_with_exit_code_1_when_a_cell_failed(own_dirs: Path) -> None:
    measured_run(own_dirs, fail=True)
    result = RUN.invoke(app, ["report", "made"])
    assert result.exit_code == 1
    assert "the engine died" in result.output


def test_cells_of_another_state_of_the_stack_are_refused(own_dirs: Path) -> None:
    store = measured_run(own_dirs)
    plan = store.directory / "plan.json"
    plan.write_text(plan.read_text().replace(CPU.digest(), "0" * 16))
    result = RUN.invoke(app, ["report", "made"])
    assert isinstance(result.exception, CampaignError)
    assert "another state of stack" in str(result.exception)


def test_serve_dry_run_shows_the_steps_and_starts_nothing(own_dirs: Path, smollm2_dir: Path) -> None:
    result = RUN.invoke(app, ["serve", "smollm2-cpu", "eagle3", "--dry-run"], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    assert "--speculative-config" in result.output
    assert "2. wait until http://127.0.0.1:" in result.output
    assert RUN.invoke(app, ["stop"]).output.strip() == "nothing to stop"


def test_status_of_nothing_is_an_empty_table(own_dirs: Path) -> None:
    result = RUN.invoke(app, ["status"])
    assert result.exit_code == 0
    assert "engine" in result.output
