"""The command: arguments, output forms, exit codes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import typer
from tests.unit.preflight import checkpoints as made
from tests.unit.preflight.checkpoints import drafted
from typer.testing import CliRunner

from outrider.errors import OutriderError
from outrider.model_store import manifest
from outrider.preflight import PreflightReport, preflight_command, run_preflight
from outrider.preflight.commands import preflight
from outrider.stack import find_stack

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

FLAGSHIP = "kimi-k2.5-rtx6000x8"


@pytest.fixture
def stack_file(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.yaml"
    path.write_text(json.dumps(made.stack(drafted("eagle3")).model_dump(mode="json", by_alias=True)))
    return path


def run(*arguments: str) -> Result:
    app = typer.Typer()
    app.command()(preflight_command)
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "200"})


def test_good_stack_exits_0(tmp_path: Path, stack_file: Path) -> None:
    target = made.llama_target().write(tmp_path / "target")
    drafter = made.llama_eagle3().write(tmp_path / "drafter")
    result = run(stack_file, "drafted", "--model-dir", target, "--drafter-dir", drafter)
    assert result.exit_code == 0, result.output
    assert "fine" in result.output


def test_errors_exit_1_and_the_table_names_code_evidence_and_fix(tmp_path: Path, stack_file: Path) -> None:
    target = made.llama_target().write(tmp_path / "target")
    drafter = made.llama_eagle3()
    del drafter.config["eagle_aux_hidden_state_layer_ids"]
    result = run(stack_file, "drafted", "--model-dir", target, "--drafter-dir", drafter.write(tmp_path / "drafter"))
    assert result.exit_code == 1
    assert "DRAFT004" in result.output
    assert "(2, 4, 5) of 8 layers" in result.output
    assert "eagle_aux_hidden_state_layer_ids" in result.output


def test_accepted_error_becomes_an_advisory(tmp_path: Path, stack_file: Path) -> None:
    target = made.llama_target().write(tmp_path / "target")
    drafter = made.llama_eagle3()
    del drafter.config["eagle_aux_hidden_state_layer_ids"]
    files = ("--model-dir", target, "--drafter-dir", drafter.write(tmp_path / "drafter"))
    result = run(stack_file, "drafted", *files, "--accept", "DRAFT004", "--json", "-")
    assert result.exit_code == 3
    finding = json.loads(result.stdout)["findings"][0]
    assert (finding["code"], finding["severity"]) == ("DRAFT004", "advisory")
    assert finding["title"].endswith("(accepted)")


def test_code_that_does_not_exist_cannot_be_accepted() -> None:
    with pytest.raises(OutriderError, match="did you mean 'DRAFT00"):
        preflight(FLAGSHIP, "baseline", accept=["DRAFT0004"])


def test_json_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OutriderError, match="cannot write"):
        preflight(FLAGSHIP, "baseline", json_path=str(tmp_path))


def test_advisories_only_exit_3() -> None:
    result = run(FLAGSHIP)
    assert result.exit_code == 3, result.output
    assert "works, with advisories" in result.output


def test_json_on_standard_output_is_all_that_is_printed() -> None:
    result = run(FLAGSHIP, "eagle3", "--json", "-")
    report = PreflightReport.model_validate_json(result.stdout)
    assert report.stack == FLAGSHIP
    assert report.variants == ("eagle3",)
    assert report.exit_code == result.exit_code == 3
    assert json.loads(result.stdout)["schema"] == 1


def test_json_file_comes_beside_the_table(tmp_path: Path) -> None:
    result = run(FLAGSHIP, "baseline", "--json", tmp_path / "report.json")
    assert result.exit_code == 0
    assert "preflight" in result.output
    data = json.loads((tmp_path / "report.json").read_text())
    finding = data["findings"][0]
    assert {"code", "severity", "where", "evidence", "fix", "doc"} <= finding.keys()


def test_node_report_is_compared(tmp_path: Path) -> None:
    node = tmp_path / "node.json"
    node.write_text(json.dumps({"driver": {"version": "550.54"}}))
    result = run(FLAGSHIP, "baseline", "--node", node)
    assert result.exit_code == 1
    assert "NODE004" in result.output


def test_running_needs_a_variant() -> None:
    with pytest.raises(OutriderError, match="one variant"):
        preflight(FLAGSHIP, None, running="http://127.0.0.1:9")


def test_log_needs_running(tmp_path: Path) -> None:
    with pytest.raises(OutriderError, match="--running"):
        preflight(FLAGSHIP, "baseline", log=tmp_path / "x.log")


def test_unknown_variant_names_the_nearest() -> None:
    with pytest.raises(OutriderError, match="did you mean 'eagle3'"):
        preflight(FLAGSHIP, "eagle4")


def test_engine_that_does_not_answer_is_an_error() -> None:
    # Port 9 on the loopback interface is the discard service, which nobody runs.
    result = run(FLAGSHIP, "baseline", "--running", "http://127.0.0.1:9")
    assert result.exit_code == 1
    assert "RUN001" in result.output


def test_flagship_works_offline_and_says_what_was_not_checked() -> None:
    report = run_preflight(find_stack(FLAGSHIP))
    assert report.count("error") == 0
    assert {one.code for one in report.findings if one.severity == "advisory"} == {"DRAFT035", "SPEC008"}
    assert any(one.code == "FILE008" and one.variant is None for one in report.findings)
    on_vllm = [name for name, variant in find_stack(FLAGSHIP).variants.items() if variant.engine is None]
    assert [figures.variant for figures in report.memory] == on_vllm


def test_finding_of_several_variants_stands_once() -> None:
    report = run_preflight(find_stack(FLAGSHIP))
    keys = [(one.code, one.where, one.evidence, one.variant) for one in report.findings]
    assert len(keys) == len(set(keys))
    assert [one.severity for one in report.findings] == sorted(
        (one.severity for one in report.findings), key=["error", "advisory", "info"].index
    )


def test_a_drafter_of_the_project_that_is_absent_or_damaged_is_a_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = drafted("eagle3") | {"drafter": {"model": "models/no-such-head"}}
    path = tmp_path / "tiny.yaml"
    path.write_text(json.dumps(made.stack(own).model_dump(mode="json", by_alias=True)))
    target = made.llama_target().write(tmp_path / "target")
    absent = run(path, "drafted", "--model-dir", target, "--json", tmp_path / "absent.json")
    assert absent.exit_code == 1
    written = json.loads((tmp_path / "absent.json").read_text())["findings"]
    (evidence,) = [finding["evidence"] for finding in written if finding["code"] == "FILE009"]
    assert "config.json: missing; *.safetensors: missing" in evidence
    head = made.llama_eagle3().write(tmp_path / "head")
    manifest.write(head, {"from": "here"})
    report = run_preflight(made.stack(own), "drafted", model_dir=target, drafter_dir=head)
    assert "FILE009" not in {finding.code for finding in report.findings}
    (head / "config.json").write_text((head / "config.json").read_text() + "\n")
    report = run_preflight(made.stack(own), "drafted", model_dir=target, drafter_dir=head)
    (finding,) = [finding for finding in report.findings if finding.code == "FILE009"]
    assert finding.evidence.endswith(" bytes instead of " + finding.evidence.rpartition(" ")[2])
    assert "config.json" in finding.evidence
