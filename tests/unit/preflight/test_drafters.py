"""Each fault of a drafter, one at a time, gives its own finding; a good drafter gives none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.unit.preflight import checkpoints as made
from tests.unit.preflight.checkpoints import HIDDEN, REDUCED, VOCABULARY, codes, drafted, zeros

from outrider.preflight import run_preflight

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.unit.preflight.checkpoints import Draft

    from outrider.preflight import PreflightReport

KINDS: dict[str, tuple[Callable[[], Draft], Callable[[], Draft], str]] = {
    "llama": (made.llama_target, made.llama_eagle3, "eagle3"),
    "speculators": (made.llama_target, made.speculators_eagle3, "eagle3"),
    "mla": (made.mla_target, made.mla_eagle3, "eagle3"),
    "dflash": (made.llama_target, made.dflash, "dflash"),
    "draft_model": (made.llama_target, made.draft_model, "draft_model"),
}


def check(
    tmp_path: Path,
    kind: str,
    spoil: Callable[[Draft], object] | None = None,
    *,
    k: int = 3,
    options: dict[str, Any] | None = None,
    **stack: Any,
) -> PreflightReport:
    make_target, make_drafter, method = KINDS[kind]
    drafter = make_drafter()
    if spoil is not None:
        spoil(drafter)
    return run_preflight(
        made.stack(drafted(method, k, **(options or {})), **stack),
        "drafted",
        model_dir=make_target().write(tmp_path / "target"),
        drafter_dir=drafter.write(tmp_path / "drafter"),
    )


def set_config(**values: Any) -> Callable[[Draft], object]:
    """Set fields of a config; None removes one."""

    def spoil(draft: Draft) -> None:
        for name, value in values.items():
            if value is None:
                draft.config.pop(name)
            else:
                draft.config[name] = value

    return spoil


def set_layer(**values: Any) -> Callable[[Draft], object]:
    return lambda draft: draft.config["transformer_layer_config"].update(values)


def set_tensor(name: str, tensor: np.ndarray | None) -> Callable[[Draft], object]:
    def spoil(draft: Draft) -> None:
        if tensor is None:
            draft.tensors.pop(name)
        else:
            draft.tensors[name] = tensor

    return spoil


def both(*spoils: Callable[[Draft], object]) -> Callable[[Draft], object]:
    return lambda draft: [spoil(draft) for spoil in spoils]


def ids_instead_of_offsets(draft: Draft) -> None:
    draft.tensors["d2t"] = np.arange(REDUCED, dtype=np.int64) + VOCABULARY - REDUCED


def other_tokenizer(draft: Draft) -> None:
    draft.tokenizer = made.tokenizer()
    vocabulary = draft.tokenizer["model"]["vocab"]
    vocabulary["t1"], vocabulary["t2"] = vocabulary["t2"], vocabulary["t1"]


def other_added_tokens(draft: Draft) -> None:
    draft.tokenizer = made.tokenizer()
    draft.tokenizer["added_tokens"][0]["id"] = VOCABULARY - 2


def nested_ids(ids: list[int]) -> Callable[[Draft], object]:
    return set_config(eagle_aux_hidden_state_layer_ids=None, eagle_config={"eagle_aux_hidden_state_layer_ids": ids})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("build", "version"), [("cuda", "0.33.0"), ("cpu", "0.32.0")])
def test_good_drafter_gives_no_finding(tmp_path: Path, kind: str, build: str, version: str) -> None:
    report = check(tmp_path, kind, build=build, version=version)
    assert codes(report.findings) == set()
    assert report.exit_code == 0


@pytest.mark.parametrize(
    ("kind", "spoil", "code"),
    [
        ("llama", set_config(architectures=["OtherForCausalLM"]), "DRAFT001"),
        ("llama", set_config(architectures=["EagleLlamaForCausalLM"]), "DRAFT001"),
        ("mla", set_config(architectures=["Eagle3OtherForCausalLM"]), "DRAFT001"),
        ("dflash", set_config(architectures=["LlamaForCausalLM"]), "DRAFT001"),
        ("draft_model", set_config(architectures=["OtherForCausalLM"]), "DRAFT001"),
        ("llama", set_config(num_attention_heads=0), "DRAFT002"),
        ("llama", set_config(vocab_size=-4), "DRAFT002"),
        ("speculators", set_config(transformer_layer_config=None), "DRAFT002"),
        ("speculators", set_layer(model_type="gemma3"), "DRAFT002"),
        ("speculators", set_config(speculators_model_type="eagle9"), "DRAFT002"),
        ("mla", set_config(qk_rope_head_dim=None), "DRAFT002"),
        ("dflash", set_config(hidden_size=None), "DRAFT002"),
        ("draft_model", set_config(num_hidden_layers="two"), "DRAFT002"),
        ("llama", set_config(eagle_aux_hidden_state_layer_ids=None), "DRAFT004"),
        ("speculators", set_config(eagle_aux_hidden_state_layer_ids=None), "DRAFT004"),
        ("mla", set_config(eagle_aux_hidden_state_layer_ids=None, eagle_config=None), "DRAFT004"),
        ("dflash", set_config(dflash_config={"mask_token_id": 5, "layer_ids": []}), "DRAFT004"),
        ("llama", set_config(eagle_aux_hidden_state_layer_ids=[2, 4, 9]), "DRAFT005"),
        ("llama", set_config(eagle_aux_hidden_state_layer_ids=[-1, 4, 5]), "DRAFT005"),
        ("speculators", set_config(eagle_aux_hidden_state_layer_ids=[2, 4, 30]), "DRAFT005"),
        ("mla", set_config(eagle_aux_hidden_state_layer_ids=[2, 4, 58]), "DRAFT005"),
        ("dflash", set_config(dflash_config={"mask_token_id": 5, "target_layer_ids": [1, 3, 8]}), "DRAFT005"),
        ("llama", set_config(eagle_aux_hidden_state_layer_ids=[2, 4]), "DRAFT006"),
        ("llama", set_config(eagle_aux_hidden_state_layer_ids=[2, 4, 4]), "DRAFT006"),
        ("speculators", set_config(eagle_aux_hidden_state_layer_ids=[2, 4, 5, 8]), "DRAFT006"),
        ("llama", set_tensor("fc.weight", zeros(HIDDEN, 2 * HIDDEN)), "DRAFT006"),
        ("mla", set_tensor("fc.weight", zeros(HIDDEN, 4 * HIDDEN)), "DRAFT006"),
        ("dflash", set_tensor("fc.weight", zeros(HIDDEN, 2 * HIDDEN)), "DRAFT006"),
        ("llama", nested_ids([2, 3, 6]), "DRAFT007"),
        ("mla", nested_ids([1, 4, 7]), "DRAFT007"),
        ("llama", set_config(eagle_aux_hidden_state_layer_ids=[5, 4, 2]), "DRAFT008"),
        ("dflash", set_config(dflash_config={"mask_token_id": 5, "target_layer_ids": [5, 3, 1]}), "DRAFT008"),
        ("llama", set_tensor("lm_head.weight", zeros(REDUCED + 1, HIDDEN)), "DRAFT010"),
        ("llama", set_tensor("t2d", np.zeros(VOCABULARY + 8, dtype=np.bool_)), "DRAFT010"),
        ("speculators", set_config(draft_vocab_size=REDUCED - 8), "DRAFT010"),
        ("llama", both(set_tensor("d2t", None), set_tensor("t2d", None)), "DRAFT011"),
        ("llama", ids_instead_of_offsets, "DRAFT012"),
        ("llama", set_tensor("d2t", np.full(REDUCED, -50, dtype=np.int64)), "DRAFT012"),
        ("speculators", set_tensor("d2t", np.full(REDUCED, 1 << 40, dtype=np.int64)), "DRAFT012"),
        ("llama", set_tensor("d2t", -np.arange(REDUCED, dtype=np.int64)), "DRAFT013"),
        ("speculators", set_tensor("t2d", np.ones(VOCABULARY, dtype=np.bool_)), "DRAFT013"),
        ("mla", set_tensor("d2t", np.zeros(VOCABULARY, dtype=np.int64)), "DRAFT014"),
        ("llama", set_tensor("midlayer.self_attn.o_proj.weight", None), "DRAFT015"),
        ("speculators", set_tensor("norm.weight", None), "DRAFT015"),
        ("mla", set_tensor("layers.0.self_attn.kv_b_proj.weight", None), "DRAFT015"),
        ("dflash", set_tensor("layers.1.self_attn.q_norm.weight", None), "DRAFT015"),
        ("llama", set_config(num_key_value_heads=4), "DRAFT016"),
        ("llama", set_config(head_dim=16), "DRAFT016"),
        ("mla", set_config(num_attention_heads=8), "DRAFT016"),
        ("dflash", set_config(intermediate_size=96), "DRAFT016"),
        ("llama", set_tensor("midlayer.extra.weight", zeros(4)), "DRAFT017"),
        ("mla", set_tensor("layers.0.mlp.experts.0.up_proj.weight", zeros(4)), "DRAFT017"),
        ("dflash", set_tensor("layers.2.input_layernorm.weight", zeros(HIDDEN)), "DRAFT017"),
        ("llama", set_tensor("lm_head.weight", None), "DRAFT019"),
        ("llama", set_config(rope_scaling={"rope_type": "yam", "factor": 2.0}), "DRAFT022"),
        ("llama", set_config(rope_scaling={"rope_type": "yarn"}), "DRAFT022"),
        ("mla", set_config(rope_theta=-1.0), "DRAFT022"),
        ("draft_model", set_config(rope_theta="large"), "DRAFT022"),
        ("mla", set_config(model_type="kimi_k2"), "DRAFT025"),
        ("llama", set_config(norm_before_fc=True), "DRAFT026"),
        ("llama", set_config(fc_norm=True), "DRAFT026"),
        ("llama", set_config(attention_bias=True), "DRAFT026"),
        ("llama", set_tensor("input_norm.weight", zeros(3 * HIDDEN)), "DRAFT026"),
        ("mla", set_tensor("fc_norm.0.weight", zeros(HIDDEN)), "DRAFT026"),
        ("speculators", set_tensor("layers.0.self_attn.q_proj.bias", zeros(HIDDEN)), "DRAFT026"),
        ("mla", set_config(norm_before_fc=True), "DRAFT026"),
        ("dflash", set_config(dflash_config={"target_layer_ids": [1, 3, 5]}), "DRAFT027"),
        ("dflash", set_config(dflash_config={"mask_token_id": 999, "target_layer_ids": [1, 3, 5]}), "DRAFT027"),
        ("draft_model", other_tokenizer, "DRAFT032"),
        ("llama", other_tokenizer, "DRAFT032"),
        ("dflash", other_tokenizer, "DRAFT032"),
        ("mla", other_added_tokens, "DRAFT033"),
        (
            "speculators",
            set_config(
                speculators_config={
                    "proposal_methods": [{"speculative_tokens": 3}],
                    "verifier": {"name_or_path": "acme/other-target"},
                }
            ),
            "DRAFT034",
        ),
        ("draft_model", set_config(quantization_config={"quant_method": "no-such"}), "DRAFT038"),
    ],
)
def test_one_fault_gives_its_finding(tmp_path: Path, kind: str, spoil: Callable[[Draft], object], code: str) -> None:
    report = check(tmp_path, kind, spoil)
    assert codes(report.findings) == {code}
    finding = next(one for one in report.findings if one.code == code)
    assert finding.evidence
    assert finding.where


@pytest.mark.parametrize(
    ("kind", "spoil", "expected"),
    [
        # A head for a wider target: its own width follows, so the tensors do not fit either.
        ("llama", set_config(target_hidden_size=2 * HIDDEN), {"DRAFT003", "DRAFT006"}),
        ("dflash", set_config(target_hidden_size=16), {"DRAFT003", "DRAFT006"}),
        ("mla", set_config(target_hidden_size=16), {"DRAFT003", "DRAFT006"}),
        ("draft_model", set_config(vocab_size=64), {"DRAFT009"}),
        ("llama", set_config(vocab_size=64), {"DRAFT009"}),
        ("mla", set_config(vocab_size=256), {"DRAFT009", "DRAFT010", "DRAFT011"}),
        ("mla", set_config(draft_vocab_size=64), {"DRAFT010", "DRAFT011"}),
        ("llama", set_tensor("d2t", np.zeros(REDUCED - 1, dtype=np.int64)), {"DRAFT010", "DRAFT013"}),
    ],
)
def test_fault_that_shows_in_several_places(
    tmp_path: Path, kind: str, spoil: Callable[[Draft], object], expected: set[str]
) -> None:
    assert codes(check(tmp_path, kind, spoil).findings) == expected


def test_nested_ids_are_read_by_the_v1_runner(tmp_path: Path) -> None:
    forced = {"VLLM_USE_V2_MODEL_RUNNER": "0"}
    assert codes(check(tmp_path, "llama", nested_ids([2, 3, 6]), env=forced).findings) == set()


def test_ids_that_are_not_read_but_equal_the_guess_are_no_fault(tmp_path: Path) -> None:
    assert codes(check(tmp_path, "llama", nested_ids([2, 4, 5])).findings) == set()


def test_last_layers_output_is_a_valid_auxiliary_layer(tmp_path: Path) -> None:
    spoil = set_config(eagle_aux_hidden_state_layer_ids=[2, 4, 8])
    assert codes(check(tmp_path, "llama", spoil).findings) == set()


def test_guessed_layers_are_named_in_the_evidence(tmp_path: Path) -> None:
    report = check(tmp_path, "llama", set_config(eagle_aux_hidden_state_layer_ids=None))
    finding = next(one for one in report.findings if one.code == "DRAFT004")
    assert "(2, 4, 5) of 8 layers" in finding.evidence
    assert finding.severity == "error"


def test_head_without_auxiliary_states_needs_no_ids(tmp_path: Path) -> None:
    def spoil(draft: Draft) -> None:
        set_config(eagle_aux_hidden_state_layer_ids=None, eagle_config={"use_aux_hidden_state": False})(draft)
        draft.tensors.pop("fc.weight")

    assert codes(check(tmp_path, "llama", spoil).findings) == set()


def test_eagle31_flags_with_their_tensors_are_fine(tmp_path: Path) -> None:
    spoil = both(
        set_config(norm_before_fc=True, fc_norm=True),
        set_tensor("input_norm.weight", zeros(3 * HIDDEN)),
        *(set_tensor(f"fc_norm.{i}.weight", zeros(HIDDEN)) for i in range(3)),
    )
    assert codes(check(tmp_path, "llama", spoil).findings) == set()


@pytest.mark.parametrize(
    ("kind", "rope", "env", "code"),
    [
        ("llama", {"rope_type": "default"}, {}, "DRAFT020"),
        ("llama", {"rope_type": "yarn", "factor": 1.0}, {}, "DRAFT021"),
        ("llama", {"rope_type": "yarn", "factor": 1.0}, {"VLLM_USE_V2_MODEL_RUNNER": "0"}, "DRAFT020"),
        ("draft_model", {"rope_type": "default"}, {}, "DRAFT021"),
        ("draft_model", {"rope_type": "default"}, {"VLLM_USE_V2_MODEL_RUNNER": "0"}, "DRAFT020"),
        ("dflash", {"rope_type": "default"}, {}, "DRAFT020"),
    ],
)
def test_short_drafter(tmp_path: Path, kind: str, rope: dict[str, Any], env: dict[str, str], code: str) -> None:
    spoil = set_config(max_position_embeddings=1024, rope_scaling=rope)
    assert codes(check(tmp_path, kind, spoil, env=env).findings) == {code}


@pytest.mark.parametrize(("kind", "code"), [("llama", "DRAFT020"), ("dflash", "DRAFT039"), ("draft_model", "DRAFT020")])
def test_short_drafter_before_0_33(tmp_path: Path, kind: str, code: str) -> None:
    spoil = set_config(max_position_embeddings=1024)
    assert codes(check(tmp_path, kind, spoil, version="0.32.0").findings) == {code}


def test_other_dtype_is_a_note(tmp_path: Path) -> None:
    report = check(tmp_path, "llama", set_config(torch_dtype="float32"))
    assert "DRAFT023" in codes(report.findings, notes=True)
    assert report.exit_code == 0


@pytest.mark.parametrize(
    ("kind", "options", "spoil", "code"),
    [
        ("llama", {}, set_config(num_attention_heads=3, num_key_value_heads=3), "DRAFT024"),
        ("llama", {"draft_tensor_parallel_size": 4}, None, "DRAFT024"),
        ("draft_model", {"draft_tensor_parallel_size": 1}, None, "DRAFT024"),
    ],
)
def test_splitting(
    tmp_path: Path, kind: str, options: dict[str, Any], spoil: Callable[[Draft], object] | None, code: str
) -> None:
    report = check(tmp_path, kind, spoil, options=options, parallel={"tensor": 2}, gpus=2)
    assert code in codes(report.findings)
    assert codes(report.findings) <= {code, "DRAFT016", "NODE018"}


def test_drafter_on_one_rank_is_fine(tmp_path: Path) -> None:
    options = {"draft_tensor_parallel_size": 1}
    assert codes(check(tmp_path, "llama", options=options, parallel={"tensor": 2}, gpus=2).findings) == set()


def test_pipeline_stages_need_an_embedding_of_the_drafters_own(tmp_path: Path) -> None:
    report = check(tmp_path, "llama", parallel={"pipeline": 2}, gpus=2)
    assert codes(report.findings) == {"DRAFT018", "SPEC014"}


def test_parallel_drafting_needs_its_mask(tmp_path: Path) -> None:
    options = {"parallel_drafting": True}
    assert codes(check(tmp_path, "llama", options=options).findings) == {"DRAFT027"}
    spoil = set_tensor("mask_hidden", zeros(1, 3 * HIDDEN))
    assert codes(check(tmp_path, "llama", spoil, options=options).findings) == set()


@pytest.mark.parametrize(("k", "anchor", "expected"), [(7, False, set()), (8, False, {"DRAFT028"}), (8, True, set())])
def test_k_against_the_block(tmp_path: Path, k: int, anchor: bool, expected: set[str]) -> None:
    spoil = set_config(dflash_config={"mask_token_id": 5, "target_layer_ids": [1, 3, 5], "sample_from_anchor": anchor})
    assert codes(check(tmp_path, "dflash", spoil, k=k).findings) == expected


def test_mixed_attention_needs_the_v2_runner(tmp_path: Path) -> None:
    spoil = set_config(layer_types=["sliding_attention", "full_attention"])
    forced = {"VLLM_USE_V2_MODEL_RUNNER": "0"}
    assert codes(check(tmp_path, "dflash", spoil, env=forced).findings) == {"DRAFT037"}
    assert codes(check(tmp_path, "dflash", spoil).findings) == set()


@pytest.mark.parametrize(
    ("declared", "present", "k", "expected"),
    [
        (1, 1, 1, set()),
        (1, 1, 2, {"DRAFT031"}),
        (2, 2, 3, {"DRAFT030"}),
        (0, 0, 1, {"DRAFT029"}),
        (1, 0, 1, {"DRAFT029", "TARGET005"}),
    ],
)
def test_mtp(tmp_path: Path, declared: int, present: int, k: int, expected: set[str]) -> None:
    target = made.mtp_target(declared, present).write(tmp_path / "target")
    report = run_preflight(made.stack(drafted("mtp", k)), "drafted", model_dir=target)
    assert codes(report.findings) == expected


def test_target_without_the_eagle3_interface(tmp_path: Path) -> None:
    target = made.llama_target()
    target.config |= {"architectures": ["FalconForCausalLM"]}
    report = run_preflight(
        made.stack(drafted("eagle3")),
        "drafted",
        model_dir=target.write(tmp_path / "target"),
        drafter_dir=made.llama_eagle3().write(tmp_path / "drafter"),
    )
    assert codes(report.findings) == {"DRAFT036"}


def test_unpinned_drafter_is_an_advisory(tmp_path: Path) -> None:
    speculation = drafted("eagle3")
    del speculation["drafter"]["revision"]
    report = run_preflight(
        made.stack(speculation),
        "drafted",
        model_dir=made.llama_target().write(tmp_path / "target"),
        drafter_dir=made.llama_eagle3().write(tmp_path / "drafter"),
    )
    assert codes(report.findings) == {"DRAFT035"}
    assert report.exit_code == 3


def test_wrapped_drafter_is_unwrapped(tmp_path: Path) -> None:
    def wrap(draft: Draft) -> None:
        inner = {**draft.config, "architectures": ["LlamaForCausalLM"]}
        draft.config = {"model_type": "eagle", "model": inner}

    assert codes(check(tmp_path, "llama", wrap).findings) == set()
