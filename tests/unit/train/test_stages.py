from __future__ import annotations

import json
import shutil
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.train.made import STACK, make_session

from outrider.train import answer, engines, extract, fit
from outrider.train.errors import TrainError
from outrider.train.export import judged, require_good
from outrider.train.worker import EXIT_NOT_FINITE, EXIT_OTHER_TOKENIZER

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from outrider.engine.base import Launch


def _full_disk(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: SimpleNamespace(free=free, total=free, used=0))


def test_extraction_refuses_a_disk_that_is_nearly_full_and_says_how_much_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _full_disk(monkeypatch, 2_000_000_000)
    with pytest.raises(TrainError, match=r"needs 5\.4 GB, 2\.0 GB are free"):
        extract.require_room(tmp_path, 5_000_000_000)


def test_what_is_extracted_already_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _full_disk(monkeypatch, 2_000_000_000)
    extract.require_room(tmp_path, 5_000_000_000, already=4_000_000_000)


def test_extraction_checks_the_disk_before_it_starts_an_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = make_session(tmp_path)
    out = session.stage_dir("extract")
    out.mkdir(parents=True)
    _full_disk(monkeypatch, 0)

    def served(*_arguments: object) -> None:
        pytest.fail("an engine was started")

    monkeypatch.setattr(type(session), "served", served)
    with pytest.raises(TrainError, match="GB are free"):
        extract.extract(session, out)


@pytest.mark.parametrize(("share", "good"), [(0.98, True), (0.9, True), (0.89, False), (0.0, False)])
def test_states_that_do_not_give_the_targets_own_words_again_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: float, good: bool
) -> None:
    session = make_session(tmp_path)
    (tmp_path / "agreement.json").write_text(json.dumps({"agreement": share}), encoding="utf-8")
    monkeypatch.setattr(extract, "run_all", lambda *_a, **_k: [0])
    if good:
        assert extract._require_agreement(session, tmp_path) == share
    else:
        with pytest.raises(TrainError, match="of the target's own greedy tokens again"):
            extract._require_agreement(session, tmp_path)


def test_a_draft_vocabulary_larger_than_the_targets_is_refused_with_both_sizes(tmp_path: Path) -> None:
    session = make_session(tmp_path, recipe={"draft_vocab_size": 601})
    with pytest.raises(TrainError, match=r"draft vocabulary \(601\) is larger than the target's \(600\)"):
        answer.prepare(session, tmp_path)


def test_another_tokenizer_at_the_served_target_stops_before_any_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = make_session(tmp_path)
    monkeypatch.setattr(answer, "run_all", lambda *_a, **_k: [EXIT_OTHER_TOKENIZER])
    with pytest.raises(TrainError, match="tokenises otherwise"):
        answer._require_same_tokenizer(session, "http://127.0.0.1:1", tmp_path)


def test_a_loss_that_is_not_finite_stops_training_and_names_the_last_good_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = make_session(tmp_path)
    out = session.stage_dir("fit")
    good = out / "checkpoints" / "1"
    good.mkdir(parents=True)
    (good / "model.safetensors").touch()
    monkeypatch.setattr(fit, "run_all", lambda *_a, **_k: [EXIT_NOT_FINITE])
    with pytest.raises(TrainError, match="its loss is not finite") as caught:
        fit.fit(session, out)
    assert str(good) in caught.value.next_step


def test_training_arguments_follow_the_recipe(tmp_path: Path) -> None:
    session = make_session(tmp_path, recipe={"mask_token_id": 7})
    words = fit.fit_arguments(session, tmp_path)
    at = words.index("--target-layer-ids")
    assert words[at + 1 : at + 4] == ["1", "2", "3"]
    assert words[words.index("--total-seq-len") + 1] == "512"
    assert words[words.index("--mask-token-id") + 1] == "7"
    assert words[words.index("--draft-attn-impl") + 1] == "sdpa"


def test_cuda_leaves_the_attention_to_speculators(tmp_path: Path) -> None:
    assert "--draft-attn-impl" not in fit.fit_arguments(make_session(tmp_path, train_device="cuda"), tmp_path)


def test_a_geometry_of_its_own_replaces_what_the_target_would_give(tmp_path: Path) -> None:
    geometry = {"model_type": "llama", "num_attention_heads": 4}
    words = fit.fit_arguments(make_session(tmp_path, recipe={"draft_config": geometry}), tmp_path)
    assert json.loads((tmp_path / "draft-config.json").read_text(encoding="utf-8")) == geometry
    assert "--full-attention-indices" not in words


@pytest.mark.parametrize(
    ("conditional", "length"), [([0.0, 0.0], 1.0), ([1.0, 1.0, 1.0], 4.0), ([0.7, 0.7, 0.7], 2.533)]
)
def test_acceptance_length_from_conditional_acceptance(conditional: list[float], length: float) -> None:
    assert fit.expected_length(conditional) == pytest.approx(length)


def test_the_epoch_of_least_validation_loss_is_the_best(tmp_path: Path) -> None:
    for epoch in ("2", "10"):
        (tmp_path / "checkpoints" / epoch).mkdir(parents=True)
        (tmp_path / "checkpoints" / epoch / "model.safetensors").touch()
    assert fit.best_checkpoint(tmp_path) == tmp_path / "checkpoints" / "10"
    (tmp_path / "checkpoints" / "checkpoint_best").symlink_to("2")
    assert fit.best_checkpoint(tmp_path) == tmp_path / "checkpoints" / "2"


def test_engines_serve_the_path_first_so_that_the_tokenizer_can_be_loaded_by_name(tmp_path: Path) -> None:
    session = make_session(tmp_path)
    argv = engines.plain_launch(session.stack, session.model_dir, 8000, {}).argv
    at = argv.index("--served-model-name")
    assert argv[at + 1 : at + 3] == (str(session.model_dir), "tiny")


def test_the_cpu_engine_extracts_through_our_connector_and_finds_it(tmp_path: Path) -> None:
    session = make_session(tmp_path)
    launch = engines.extraction_launch(
        session.stack, session.model_dir, 8000, {"PYTHONPATH": "/given"}, layers=(1, 2, 4), storage=tmp_path
    )
    connector = json.loads(launch.argv[launch.argv.index("--kv-transfer-config") + 1])
    assert connector["kv_connector_module_path"] == "outrider.train.cpu_connector"
    assert launch.env["PYTHONPATH"].startswith("/given:")
    speculation = json.loads(launch.argv[launch.argv.index("--speculative-config") + 1])
    assert speculation["draft_model_config"]["hf_config"]["eagle_aux_hidden_state_layer_ids"] == [1, 2, 4]


def test_a_cuda_engine_extracts_through_its_own_connector_with_several_api_servers_for_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTRIDER_ENGINE_PYTHON", "/opt/engine/bin/python")
    cuda = STACK.replace("version: 0.32.0, build: cpu", "version: 0.33.0, build: cuda").replace(
        "accelerator: cpu", "accelerator: H200, gpus: 1"
    )
    session = make_session(tmp_path, cuda)
    launch = engines.extraction_launch(
        session.stack, session.model_dir, 8000, {}, layers=(1, 4), storage=tmp_path, text_only=True
    )
    assert "kv_connector_module_path" not in launch.argv[launch.argv.index("--kv-transfer-config") + 1]
    assert "--language-model-only" in launch.argv
    assert launch.argv[1:4] == ("-m", "vllm.entrypoints.cli.main", "serve")
    answers = engines.plain_launch(session.stack, session.model_dir, 8000, {}, servers=4)
    assert answers.argv[answers.argv.index("--api-server-count") + 1] == "4"


def _report(*, chat: float, served: float, offline: float) -> dict[str, Any]:
    return {
        "served": {"chat": {"length": chat}, "all": {"length": chat, "conditional": [served]}},
        "offline": {"conditional": [offline]},
    }


def test_a_head_under_its_floor_is_not_exported() -> None:
    with pytest.raises(TrainError, match=r"1\.40 is under its floor 2\.00; it is not exported"):
        require_good(_report(chat=1.4, served=0.4, offline=0.4), 2.0, evidence="report.json")


def test_a_head_that_the_engine_does_not_reproduce_is_not_exported() -> None:
    with pytest.raises(TrainError, match=r"offline it is 0\.70"):
        require_good(_report(chat=2.1, served=0.3, offline=0.7), 2.0, evidence="report.json")


def test_a_head_that_keeps_both_promises_is_good() -> None:
    require_good(_report(chat=2.1, served=0.6, offline=0.7), 2.0, evidence="report.json")


def test_the_floor_is_about_chat_where_chat_was_measured() -> None:
    assert judged({"served": {"chat": {"length": 2.5}, "all": {"length": 1.5}}}) == 2.5
    assert judged({"served": {"all": {"length": 1.5}}}) == 1.5


def test_offline_training_skips_rows_whose_states_are_missing(tmp_path: Path) -> None:
    with fit._hidden_states(make_session(tmp_path), tmp_path) as words:
        assert words == ["--on-missing", "skip"]


def test_online_training_asks_an_extraction_engine_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = make_session(tmp_path, recipe={"online": True})
    launched: list[str] = []

    @contextmanager
    def served(_self: object, purpose: str, launch: Launch) -> Iterator[str]:
        launched.extend((purpose, *launch.argv))
        (tmp_path / "incoming" / "left.safetensors").touch()
        yield "http://127.0.0.1:1"

    monkeypatch.setattr(type(session), "served", served)
    with fit._hidden_states(session, tmp_path) as words:
        assert words == ["--on-missing", "generate", "--vllm-endpoint", "http://127.0.0.1:1/v1"]
    assert launched[0] == "extract"
    assert not (tmp_path / "incoming").exists()


def test_several_gpus_train_through_torchrun(tmp_path: Path) -> None:
    cuda = STACK.replace("version: 0.32.0, build: cpu", "version: 0.33.0, build: cuda").replace(
        "accelerator: cpu", "accelerator: H200, gpus: 4"
    )
    session = make_session(tmp_path, cuda, train_device="cuda")
    job = fit._on_every_gpu(session, session.job(tmp_path / "log", "speculators", "train"))
    assert job.argv[1:6] == ["-m", "torch.distributed.run", "--nproc_per_node=4", "-m", "outrider.train.worker"]


@pytest.mark.parametrize("layers", [(1, 2, 4), (1, 1, 2), (-1, 2, 3)])
def test_auxiliary_layers_that_the_target_lacks_are_refused(tmp_path: Path, layers: tuple[int, ...]) -> None:
    with pytest.raises(TrainError, match="do not fit a target of 4 layers"):
        make_session(tmp_path, recipe={"aux_layers": layers}).require_layers()
