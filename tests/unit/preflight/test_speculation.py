"""SpeculativeConfig: fields, values, schedules and combinations of the pinned version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.preflight import checkpoints as made
from tests.unit.preflight.checkpoints import codes, drafted

from outrider.preflight import run_preflight
from outrider.preflight.checks.case import Case
from outrider.preflight.checks.speculation import RENAMED, check_speculation, schedule_problems
from outrider.preflight.engine_tables import engine_table, versions
from outrider.preflight.facts.shape import shape_of
from outrider.preflight.reading import LocalFiles, read_checkpoint

if TYPE_CHECKING:
    from pathlib import Path

    from outrider.preflight import PreflightReport


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made.llama_target().write(tmp_path_factory.mktemp("target"))


def check(target: Path, method: str, k: int = 3, *, speculation: Any = None, **keywords: Any) -> PreflightReport:
    stack_names = {"build", "version", "flags", "env", "parallel", "memory", "gpus", "drafted_flags"}
    stack = {name: value for name, value in keywords.items() if name in stack_names}
    options = {name: value for name, value in keywords.items() if name not in stack_names}
    what = drafted(method, k, **options) | (speculation or {})
    return run_preflight(made.stack(what, **stack), "drafted", model_dir=target)


@pytest.mark.parametrize(
    ("old", "today"), [("draft_attention_backend", "attention_backend"), ("draft_kv_cache_dtype", "kv_cache_dtype"),
                       ("disable_by_batch_size", "num_speculative_tokens_per_batch_size")]
)  # fmt: skip
@pytest.mark.parametrize("version", ["0.32.0", "0.33.0"])
def test_renamed_field_names_its_successor(target: Path, old: str, today: str, version: str) -> None:
    report = check(target, "eagle3", version=version, **{old: "x"})
    assert codes(report.findings) == {"SPEC001"}
    assert f"did you mean '{today}'?" in next(f.evidence for f in report.findings if f.code == "SPEC001")


@pytest.mark.parametrize("version", versions())
def test_every_successor_is_a_field_of_every_version(version: str) -> None:
    table = engine_table("vllm", version)
    assert table is not None
    assert {today for today in RENAMED.values() if today} <= table.speculative_fields.keys()
    assert not RENAMED.keys() & table.speculative_fields.keys()


def test_mistyped_field_is_matched_to_the_nearest(target: Path) -> None:
    report = check(target, "eagle3", rejection_sampling_method="standard")
    assert "did you mean 'rejection_sample_method'?" in report.findings[0].evidence


def test_dropped_field_says_so(target: Path) -> None:
    report = check(target, "eagle3", posterior_alpha=0.1)
    assert "has no successor" in next(f.evidence for f in report.findings if f.code == "SPEC001")


def test_probabilistic_rejection_names_what_says_the_same_today(target: Path) -> None:
    report = check(target, "eagle3", rejection_sample_method="probabilistic")
    assert codes(report.findings) == {"SPEC002"}
    finding = next(f for f in report.findings if f.code == "SPEC002")
    assert "draft_sample_method: probabilistic" in finding.evidence


@pytest.mark.parametrize(("version", "expected"), [("0.32.0", {"SPEC002"}), ("0.33.0", set())])
def test_fly_came_with_0_33(target: Path, version: str, expected: set[str]) -> None:
    assert codes(check(target, "eagle3", version=version, rejection_sample_method="fly").findings) == expected


@pytest.mark.parametrize(
    "options",
    [
        {"draft_sample_method": "hot"},
        {"attention_backend": "FLASH_ATTENTION"},
        {"kv_cache_dtype": "fp7"},
        {"quantization": "q9"},
        {"draft_tensor_parallel_size": 0},
        {"draft_tensor_parallel_size": "two"},
        {"disable_padded_drafter_batch": "perhaps"},
        {"suffix_decoding_min_token_prob": 1.5},
        {"xpress_topc": -1},
    ],
)
def test_value_that_is_not_allowed(target: Path, options: dict[str, Any]) -> None:
    found = codes(check(target, "eagle3", **options).findings)
    assert "SPEC002" in found
    assert found <= {"SPEC002", "SPEC013", "DRAFT024"}


@pytest.mark.parametrize(
    "options",
    [
        {"attention_backend": "triton_attn"},
        {"attention_backend": "auto"},
        {"kv_cache_dtype": "fp8"},
        {"draft_sample_method": "probabilistic"},
        {"rejection_sample_method": "block"},
        {"draft_tensor_parallel_size": 1},
        {"use_local_argmax_reduction": True},
        {"rejection_sample_method": "synthetic", "synthetic_acceptance_length": 2.5},
    ],
)
def test_value_that_is_allowed(target: Path, options: dict[str, Any]) -> None:
    assert codes(check(target, "eagle3", **options).findings) == set()


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"rejection_sample_method": "synthetic"}, "SPEC011"),
        ({"synthetic_acceptance_length": 2.0}, "SPEC011"),
        ({"rejection_sample_method": "synthetic", "synthetic_acceptance_length": 4.5}, "SPEC004"),
        ({"rejection_sample_method": "synthetic", "synthetic_acceptance_length": 0.5}, "SPEC004"),
        ({"rejection_sample_method": "fly", "fly_window_size": 3}, "SPEC004"),
        ({"num_speculative_tokens": 5}, "SPEC010"),
        ({"use_heterogeneous_vocab": True}, "SPEC013"),
        ({"dspark_draft_topk": 4}, "SPEC013"),
        ({"xpress_topc": 4}, "SPEC013"),
        ({"index_share_for_mtp_iteration": True}, "SPEC013"),
        ({"max_model_len": 9999}, "SPEC013"),
        ({"parallel_drafting": True, "disable_padded_drafter_batch": True}, "SPEC013"),
    ],
)
def test_options_that_exclude_each_other(target: Path, options: dict[str, Any], code: str) -> None:
    assert codes(check(target, "eagle3", **options).findings) == {code}


def test_fly_needs_two_tokens(target: Path) -> None:
    assert codes(check(target, "eagle3", 1, rejection_sample_method="fly").findings) == {"SPEC004"}


def test_synthetic_acceptance_on_the_cpu_build(target: Path) -> None:
    report = check(target, "eagle3", build="cpu", version="0.32.0", rejection_sample_method="synthetic",
                   synthetic_acceptance_length=2.0)  # fmt: skip
    assert codes(report.findings) == {"SPEC019"}


@pytest.mark.parametrize(
    ("method", "keywords", "expected"),
    [
        ("eagle3", {}, set()),
        ("eagle3", {"env": {"VLLM_USE_V2_MODEL_RUNNER": "0"}}, {"SPEC008"}),
        ("eagle3", {"env": {"VLLM_USE_V2_MODEL_RUNNER": "0"}, "flags": {"enforce-eager": True}}, set()),
        ("suffix", {}, {"SPEC007", "SPEC017"}),
        ("ngram", {"parallel": {"data": 2}, "gpus": 2}, {"SPEC006"}),
        ("ngram", {"build": "cpu", "version": "0.32.0"}, set()),
        ("ngram", {"memory": {"max_num_seqs": 64}}, {"SPEC009"}),
    ],
)
def test_schedule(target: Path, method: str, keywords: dict[str, Any], expected: set[str]) -> None:
    schedule = {"schedule": [[1, 2, 3], [3, 8, 1]]}
    assert codes(check(target, method, speculation=schedule, **keywords).findings) == expected


@pytest.mark.parametrize(
    ("bands", "fault"),
    [
        ([], "no band"),
        ([(2, 4, 3)], "starts at 2"),
        ([(1, 4, 3), (4, 8, 1)], "overlaps"),
        ([(1, 4, -1)], "is no band"),
        ([(1, 0, 2)], "is no band"),
    ],
)
def test_malformed_schedule(bands: list[tuple[int, int, int]], fault: str) -> None:
    assert any(fault in problem for problem in schedule_problems(bands))


def test_well_formed_schedules_have_no_problem() -> None:
    assert schedule_problems([(1, 4, 3), (5, 8, 0)]) == []
    assert schedule_problems([(1, 16, 3), (32, 128, 2)]) == []


@pytest.mark.parametrize(
    ("method", "options", "env", "build"),
    [
        ("suffix", {}, {"VLLM_USE_V2_MODEL_RUNNER": "1"}, "cuda"),
        ("eagle3", {"parallel_drafting": True}, {"VLLM_USE_V2_MODEL_RUNNER": "1"}, "cuda"),
        ("dspark", {}, {"VLLM_USE_V2_MODEL_RUNNER": "0"}, "cuda"),
        ("dspark", {}, {}, "cpu"),
        ("eagle3", {"draft_lm_head_quantization": "fp8"}, {"VLLM_USE_V2_MODEL_RUNNER": "0"}, "cuda"),
    ],
)
def test_runner_that_the_environment_rules_out(
    target: Path, method: str, options: dict[str, Any], env: dict[str, str], build: str
) -> None:
    found = codes(check(target, method, env=env, build=build, **options).findings)
    assert "SPEC012" in found
    assert found <= {"SPEC012", "SPEC017"}


@pytest.mark.parametrize(
    ("method", "flags", "env", "expected"),
    [
        ("ngram", {}, {}, set()),
        ("eagle3", {}, {}, {"SPEC014"}),
        ("ngram", {"async-scheduling": True}, {"VLLM_USE_V2_MODEL_RUNNER": "0"}, {"SPEC015"}),
    ],
)
def test_pipeline_stages(
    target: Path, method: str, flags: dict[str, Any], env: dict[str, str], expected: set[str]
) -> None:
    report = check(target, method, flags=flags, env=env, parallel={"pipeline": 2}, gpus=2)
    assert codes(report.findings) == expected


@pytest.mark.parametrize(("shortest", "expected"), [(2, {"SPEC016"}), (3, set())])
def test_short_ngrams_with_tool_calls(target: Path, shortest: int, expected: set[str]) -> None:
    report = check(
        target,
        "ngram",
        flags={"tool-call-parser": "hermes"},
        speculation={"lookup_min": shortest, "lookup_max": 5},
    )
    assert codes(report.findings) == expected


def test_more_tokens_than_a_step_schedules(target: Path) -> None:
    assert codes(check(target, "eagle3", flags={"max-num-batched-tokens": 3}).findings) == {"SPEC018"}


@pytest.mark.parametrize("method", ["ngram", "ngram_gpu", "eagle3", "dflash", "draft_model"])
def test_plain_methods_give_no_finding(target: Path, method: str) -> None:
    assert codes(check(target, method).findings) == set()


def test_method_that_came_with_another_version(target: Path) -> None:
    stack = made.stack(drafted("dflash"))
    table = engine_table("vllm", "0.33.0")
    assert table is not None
    older = table.model_copy(update={"methods": table.methods - {"dflash"}})
    checkpoint = read_checkpoint(LocalFiles(target))
    case = Case(stack, "drafted", older, checkpoint, shape_of(checkpoint.config or {}), "v2")
    assert codes(check_speculation(case)) == {"SPEC003"}


def test_schedule_that_did_not_come_through_the_schema(target: Path) -> None:
    stack = made.stack(drafted("ngram"))
    variant = stack.variants["drafted"]
    assert variant.speculation is not None
    spoilt = variant.model_copy(
        update={"speculation": variant.speculation.model_copy(update={"schedule": ((2, 4, 1),)})}
    )
    stack = stack.model_copy(update={"variants": stack.variants | {"drafted": spoilt}})
    assert codes(run_preflight(stack, "drafted", model_dir=target).findings) == {"SPEC005"}


@pytest.mark.parametrize(
    ("method", "keywords", "expected"),
    [
        ("eagle3", {}, set()),
        ("ngram", {"build": "cpu", "version": "0.32.0"}, set()),
        ("eagle3", {"env": {"VLLM_USE_V2_MODEL_RUNNER": "0"}}, {"SPEC008"}),
        ("eagle3", {"parallel": {"data": 2}, "gpus": 2}, {"SPEC022"}),
        ("suffix", {}, {"SPEC017", "SPEC022"}),
        ("eagle3", {"version": "0.31.0"}, {"SPEC021"}),
        ("eagle3", {"flags": {"api-server-count": 2}}, {"SPEC023"}),
    ],
)
def test_choosing_k_at_run_time(target: Path, method: str, keywords: dict[str, Any], expected: set[str]) -> None:
    report = check(target, method, speculation={"auto": True}, **keywords)
    assert codes(report.findings) & {"SPEC008", "SPEC017", "SPEC021", "SPEC022", "SPEC023"} == expected
