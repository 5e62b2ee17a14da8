from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.stack import stack_from_text
from outrider.train import catalogue
from outrider.train.errors import TrainError
from outrider.train.extract import hidden_state_bytes
from outrider.train.plan import HeadShape, PlanNode, TargetShape, Workload, plan_on, verdict
from outrider.train.plan_document import plan_json, plan_markdown
from outrider.train.recipe import recipe_of

if TYPE_CHECKING:
    from pathlib import Path

KIMI = TargetShape("moonshotai/Kimi-K2.5", 61, 7168, 163840, 32e9, 595)
KIMI_HEAD = HeadShape(aux_layers=3, hidden_size=7168, intermediate_size=18432, draft_vocab_size=32000)
SMOLLM = TargetShape("HuggingFaceTB/SmolLM2-135M-Instruct", 30, 576, 49152, 0.1345e9, 0.27)
SMOLLM_HEAD = HeadShape(3, 576, 1536, 8192)
PUBLISHED = Workload(samples=600_000, seq_len=10_000)


def _node(name: str = "h200x8", target: TargetShape = KIMI) -> PlanNode:
    return catalogue.find_node(name, target)


def test_the_published_bill_of_kimi_k25_is_met_within_a_factor_of_two() -> None:
    # ~1,500 H200-hours for 600k samples, 6B tokens.
    plan = plan_on(_node(), KIMI, KIMI_HEAD, PUBLISHED)
    assert 750 < plan.gpu_hours < 3000


def test_a_128k_sample_of_kimi_is_about_seven_gigabytes() -> None:
    assert hidden_state_bytes(131_072, 4, 7168) / 1e9 == pytest.approx(7.5, abs=0.6)


def test_six_billion_tokens_would_be_344_terabytes_so_extraction_goes_online() -> None:
    plan = plan_on(_node(), KIMI, KIMI_HEAD, PUBLISHED)
    assert hidden_state_bytes(6_000_000_000, 4, 7168) / 1e12 == pytest.approx(344, rel=0.01)
    assert plan.mode == "online"
    assert plan.stages["extract"].disk_gb == 0
    assert "344.1 TB" in plan.reason


@pytest.mark.parametrize(("stage", "seconds"), [("regenerate", 40), ("extract", 55)])
def test_the_measured_stages_of_the_embedded_target_are_met_within_a_factor_of_two(stage: str, seconds: float) -> None:
    # One H200, vLLM 0.33.0: 3000 samples x 256 answer tokens; engine starts come on top of the figures.
    work = Workload(samples=3000, seq_len=300, answer_share=256 / 300)
    cost = plan_on(_node("h200x1", SMOLLM), SMOLLM, SMOLLM_HEAD, work).stages[stage]
    assert seconds / 2 < cost.wall_hours * 3600 - cost.start_s < seconds * 2


@pytest.mark.parametrize(
    ("stage", "seconds"), [("regenerate", 274), ("extract", 51 + 124), ("fit", 393), ("evaluate", 104)]
)
def test_the_shipped_heads_own_run_is_met_within_a_factor_of_three(stage: str, seconds: float) -> None:
    # 8480 conversations, 2.48M tokens of which 1.97M answers, 16 epochs; engine starts included (training.json).
    work = Workload(samples=8480, seq_len=292, answer_share=0.795, epochs=16)
    plan = plan_on(_node("h200x1", SMOLLM), SMOLLM, SMOLLM_HEAD, work)
    assert seconds / 3 < plan.stages[stage].wall_hours * 3600 < seconds * 3
    assert 946 / 2 < plan.wall_hours * 3600 < 946 * 2


def test_what_fits_the_disk_is_extracted_once() -> None:
    plan = plan_on(_node("h200x1", SMOLLM), SMOLLM, SMOLLM_HEAD, Workload(10_000, 300, epochs=10))
    assert plan.mode == "offline"
    assert plan.stages["extract"].disk_gb == pytest.approx(10_000 * 300 * 4 * 576 * 2 / 1e9)


def test_online_extraction_pays_for_every_epoch() -> None:
    once = plan_on(_node(), KIMI, KIMI_HEAD, PUBLISHED).stages["extract"].gpu_hours
    twice = plan_on(_node(), KIMI, KIMI_HEAD, Workload(600_000, 10_000, epochs=2)).stages["extract"].gpu_hours
    assert twice == pytest.approx(2 * once, rel=0.05)


def test_a_target_that_no_gpu_memory_holds_does_not_fit() -> None:
    plan = plan_on(_node("h200x1"), KIMI, KIMI_HEAD, Workload(100, 1000))
    assert not plan.fits
    assert "GB memory" in plan.reason


@given(st.integers(1, 10**6), st.integers(2, 10**5), st.integers(2, 9))
def test_more_samples_never_cost_less(samples: int, seq_len: int, factor: int) -> None:
    small = plan_on(_node(), KIMI, KIMI_HEAD, Workload(samples, seq_len))
    large = plan_on(_node(), KIMI, KIMI_HEAD, Workload(samples * factor, seq_len))
    for stage, cost in small.stages.items():
        assert large.stages[stage].gpu_hours >= cost.gpu_hours


def test_the_verdict_says_hours_where_it_fits() -> None:
    plan = plan_on(_node("h200x1", SMOLLM), SMOLLM, SMOLLM_HEAD, Workload(3000, 300))
    assert verdict(plan, []).startswith("fits here (1x H200) in")


def test_the_verdict_names_the_faster_machine_where_it_would_take_weeks() -> None:
    here = plan_on(_node("rtx6000x8"), KIMI, KIMI_HEAD, PUBLISHED)
    others = [plan_on(_node(name), KIMI, KIMI_HEAD, PUBLISHED) for name in ("h200x8", "b200x8")]
    sentence = verdict(here, others)
    assert "days here (8x RTX PRO 6000 PCIe)" in sentence
    assert "on 8x B200 NVLink it takes" in sentence


def test_the_verdict_does_not_send_people_to_a_slower_machine() -> None:
    here = plan_on(_node("b200x8"), KIMI, KIMI_HEAD, PUBLISHED)
    others = [plan_on(_node("rtx6000x8"), KIMI, KIMI_HEAD, PUBLISHED)]
    assert "no machine of the catalogue is faster" in verdict(here, others)


def test_the_json_form_has_what_other_commands_read() -> None:
    here = plan_on(_node(), KIMI, KIMI_HEAD, PUBLISHED)
    data = json.loads(json.dumps(plan_json(here, [here], PUBLISHED, "a sentence")))
    assert set(data["stages"]) == {"regenerate", "extract", "fit", "evaluate"}
    assert all({"gpu_hours", "wall_hours", "disk_gb"} <= set(stage) for stage in data["stages"].values())
    assert data["verdict"] == "a sentence"


def test_the_document_has_stages_commands_machines_risks_and_gates() -> None:
    here = plan_on(_node("rtx6000x8"), KIMI, KIMI_HEAD, PUBLISHED)
    others = [plan_on(_node("h200x8"), KIMI, KIMI_HEAD, PUBLISHED)]
    text = plan_markdown("kimi-k2.5-rtx6000x8", KIMI, here, others, PUBLISHED, verdict(here, others), 2.6)
    for needed in ("## Stages", "## Commands", "## Machines", "## Risks", "## Go or no-go", "outrider train run"):
        assert needed in text
    assert all(stage in text for stage in here.stages)
    assert "at least 2.6" in text


def test_every_node_of_the_catalogue_carries_its_source() -> None:
    assert {"rtx6000x8", "h200x8", "b200x8", "this"} <= set(catalogue.node_names())
    for name in catalogue.node_names():
        node = _node(name)
        assert node.source
        assert node.answer_source


def test_an_unknown_node_is_answered_with_the_nearest_name() -> None:
    with pytest.raises(TrainError, match="did you mean 'h200x8'"):
        catalogue.find_node("h200-x8", KIMI)


def test_a_node_file_that_lacks_a_field_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("title: mine\ngpus: 2\nbf16_tflops: 100\n", encoding="utf-8")
    with pytest.raises(TrainError, match="not complete"):
        catalogue.find_node(str(file), KIMI)


def test_a_given_throughput_wins_over_the_catalogue() -> None:
    node = catalogue.find_node("h200x8", KIMI, answer_tok_s=123.0)
    assert (node.answer_tok_s, node.answer_source) == (123.0, "given")


def test_active_parameters_of_a_dense_llama() -> None:
    config = {
        "hidden_size": 576, "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3, "head_dim": 64,
        "intermediate_size": 1536, "vocab_size": 49152,
    }  # fmt: skip
    assert catalogue.active_params(config) == pytest.approx(0.1345e9, rel=0.01)


def test_active_parameters_of_kimis_mixture() -> None:
    config = {
        "hidden_size": 7168, "num_hidden_layers": 61, "num_attention_heads": 64, "intermediate_size": 18432,
        "moe_intermediate_size": 2048, "num_experts_per_tok": 8, "n_shared_experts": 1, "first_k_dense_replace": 1,
        "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
        "vocab_size": 163840,
    }  # fmt: skip
    assert catalogue.active_params(config) == pytest.approx(32e9, rel=0.06)


def test_the_recipe_is_the_stacks_section() -> None:
    text = """
schema: 1
name: tiny
title: t
target: {model: a/b, served_name: t, license: MIT, max_model_len: 64, weight_gb: 0.1}
engine: {version: 0.32.0, build: cpu}
node: {description: d, accelerator: cpu}
variants: {baseline: {}}
"""
    with pytest.raises(TrainError, match="says nothing about training"):
        recipe_of(stack_from_text(text))
    recipe = recipe_of(stack_from_text(text + "training: {aux_layers: [1, 2], floor: 1.7}\n"))
    assert (recipe.aux_layers, recipe.floor) == ((1, 2), 1.7)
    assert recipe.with_flags(epochs=3, lr=None).epochs == 3
