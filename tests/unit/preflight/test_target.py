"""Each fault of a target gives its own finding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.preflight import checkpoints as made
from tests.unit.preflight.checkpoints import HIDDEN, LAYERS, VOCABULARY, codes, zeros

from outrider.preflight import run_preflight

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.unit.preflight.checkpoints import Draft

    from outrider.preflight import PreflightReport


def check(
    tmp_path: Path, spoil: Callable[[Draft], object] | None = None, *, mla: bool = False, **stack: Any
) -> PreflightReport:
    target = made.mla_target() if mla else made.llama_target()
    if spoil is not None:
        spoil(target)
    return run_preflight(made.stack(**stack), "baseline", model_dir=target.write(tmp_path / "target"))


def set_config(**values: Any) -> Callable[[Draft], object]:
    return lambda draft: draft.config.update(values)


def set_text(**values: Any) -> Callable[[Draft], object]:
    return lambda draft: draft.config["text_config"].update(values)


def without(prefix: str) -> Callable[[Draft], object]:
    def spoil(draft: Draft) -> None:
        draft.tensors = {name: tensor for name, tensor in draft.tensors.items() if not name.startswith(prefix)}

    return spoil


def tokenizer_of(size: int) -> Callable[[Draft], object]:
    def spoil(draft: Draft) -> None:
        draft.tokenizer = made.tokenizer(size)

    return spoil


def doubled_id(draft: Draft) -> None:
    assert draft.tokenizer is not None
    draft.tokenizer["model"]["vocab"]["t1"] = 2


@pytest.mark.parametrize("mla", [False, True])
@pytest.mark.parametrize(("build", "version"), [("cuda", "0.33.0"), ("cuda", "0.32.0"), ("cpu", "0.32.0")])
def test_good_target_gives_no_finding(tmp_path: Path, mla: bool, build: str, version: str) -> None:
    assert codes(check(tmp_path, mla=mla, build=build, version=version).findings) == set()


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (set_config(architectures=["LamaForCausalLM"]), "TARGET001"),
        (set_config(architectures=[]), "TARGET001"),
        (set_config(architectures="LlamaForCausalLM"), "TARGET001"),
        (set_config(hidden_size=None), "TARGET002"),
        (set_config(num_attention_heads=-4), "TARGET002"),
        (set_config(vocab_size=True), "TARGET002"),
        (set_config(quantization_config={"quant_method": "fp9"}), "TARGET003"),
        (set_config(num_nextn_predict_layers=1), "TARGET005"),
        (without("model.layers.3."), "TARGET006"),
        (without("model.embed_tokens"), "TARGET006"),
        (without("lm_head"), "TARGET006"),
        (lambda d: d.tensors.update({"model.embed_tokens.weight": zeros(100, HIDDEN)}), "TARGET007"),
        (doubled_id, "TARGET008"),
        (tokenizer_of(VOCABULARY + 1), "TARGET009"),
        (set_config(eos_token_id=[VOCABULARY - 1, 9]), "TARGET011"),
        (set_config(max_position_embeddings=1024), "TARGET015"),
    ],
)
def test_one_fault_gives_its_finding(tmp_path: Path, spoil: Callable[[Draft], object], code: str) -> None:
    report = check(tmp_path, spoil)
    assert codes(report.findings) == {code}


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (set_text(num_hidden_layers=0), "TARGET002"),
        (set_text(kv_lora_rank="512"), "TARGET002"),
        (set_text(num_hidden_layers=LAYERS + 1), "TARGET006"),
        (set_text(vocab_size=VOCABULARY + 8), "TARGET007"),
        (set_text(quantization_config={"quant_method": "fp9"}), "TARGET003"),
    ],
)
def test_nested_text_config_is_looked_into(tmp_path: Path, spoil: Callable[[Draft], object], code: str) -> None:
    assert codes(check(tmp_path, spoil, mla=True).findings) == {code}


@pytest.mark.parametrize(
    ("stack", "code"),
    [
        ({"accelerator": "V100"}, "TARGET004"),
        ({"flags": {"tool-call-parser": "kimi_k3x"}}, "TARGET013"),
        ({"flags": {"reasoning-parser": "kimi-k2"}}, "TARGET013"),
        ({"flags": {"use-v2-block-manager": True}}, "TARGET020"),
        ({"parallel": {"tensor": 3}, "gpus": 3}, "TARGET014"),
        ({"length": 8192}, "TARGET015"),
        ({"flags": {"attention-backend": "TRITON_MLAA"}}, "TARGET019"),
    ],
)
def test_stack_that_does_not_fit_the_target(tmp_path: Path, stack: dict[str, Any], code: str) -> None:
    spoil = set_config(quantization_config={"quant_method": "fp8"}) if code == "TARGET004" else None
    report = check(tmp_path, spoil, **stack)
    assert codes(report.findings) == {code}


def test_a_flag_that_the_engine_does_not_know_is_named_with_its_place_and_the_nearest_one(tmp_path: Path) -> None:
    report = check(tmp_path, flags={"enforce-eagre": True, "no-enable-prefix-cachin": True, "enforce-eager": True})
    found = {finding.where: finding.evidence for finding in report.findings if finding.code == "TARGET020"}
    assert len(found) == 1, "the second is cut short, which argparse takes"
    ((where, evidence),) = found.items()
    assert where.endswith("flags.enforce-eagre")
    assert "vllm 0.33.0 has no --enforce-eagre" in evidence
    assert "'enforce-eager'" in evidence


def test_a_flag_may_be_switched_off_or_cut_short_where_that_leaves_one_meaning(tmp_path: Path) -> None:
    good = {"no-enable-prefix-caching": True, "enable-chunked-prefill": False, "tool-call-pars": "kimi_k2"}
    assert not [f for f in check(tmp_path, flags=good).findings if f.code == "TARGET020"]
    unclear = {"enable-log": True}  # several options begin like this
    assert [f.code for f in check(tmp_path, flags=unclear).findings if f.code == "TARGET020"] == ["TARGET020"]


@pytest.mark.parametrize(("value", "open_"), [("1", True), ("true", True), ("0", False), ("", False)])
def test_endpoints_that_no_key_guards_are_refused(tmp_path: Path, value: str, open_: bool) -> None:
    found = [f for f in check(tmp_path, env={"VLLM_SERVER_DEV_MODE": value}).findings if f.code == "TARGET021"]
    assert [(f.where.rpartition(".")[2], f.evidence) for f in found] == [("VLLM_SERVER_DEV_MODE", value)] * open_


def test_nearest_parser_is_named(tmp_path: Path) -> None:
    report = check(tmp_path, flags={"reasoning-parser": "kimi-k2"})
    assert "did you mean 'kimi_k2'?" in next(f.evidence for f in report.findings if f.code == "TARGET013")


def test_removed_architecture_says_who_served_it_last(tmp_path: Path) -> None:
    report = check(tmp_path, set_config(architectures=["MotifForCausalLM"]))
    assert "last served by 0.10.2" in next(f.evidence for f in report.findings if f.code == "TARGET001")


def test_architecture_without_pipeline_interface(tmp_path: Path) -> None:
    report = check(
        tmp_path, set_config(architectures=["WhisperForConditionalGeneration"]), parallel={"pipeline": 2}, gpus=2
    )
    assert codes(report.findings) == {"TARGET016"}


def test_unknown_engine_version_is_a_note_not_a_fault(tmp_path: Path) -> None:
    report = check(tmp_path, set_config(architectures=["AnyForCausalLM"]), version="0.99.0")
    assert codes(report.findings) == set()
    assert "TARGET017" in codes(report.findings, notes=True)


def test_longer_than_the_limit_may_be_asked_for(tmp_path: Path) -> None:
    report = check(tmp_path, length=8192, env={"VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1"})
    assert codes(report.findings) == set()


def test_yarn_multiplies_the_original_length(tmp_path: Path) -> None:
    rope = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}
    spoil = set_config(rope_scaling=rope, max_position_embeddings=4096)
    assert codes(check(tmp_path, spoil, length=16384).findings) == set()
    assert codes(check(tmp_path, spoil, length=16385).findings) == {"TARGET015"}


def test_differing_eos_ids_that_are_all_honoured_are_a_note(tmp_path: Path) -> None:
    def spoil(draft: Draft) -> None:
        draft.config["eos_token_id"] = 7
        draft.generation_config = {"eos_token_id": [7, 9]}

    report = check(tmp_path, spoil)
    assert codes(report.findings) == set()
    assert "TARGET012" in codes(report.findings, notes=True)


def test_generation_config_that_the_engine_is_told_to_ignore(tmp_path: Path) -> None:
    def spoil(draft: Draft) -> None:
        draft.config["eos_token_id"] = 7
        draft.generation_config = {"eos_token_id": [7]}

    assert codes(check(tmp_path, spoil, flags={"generation-config": "vllm"}).findings) == {"TARGET011"}


def test_tied_head_and_declared_mtp_layers_are_fine(tmp_path: Path) -> None:
    def spoil(draft: Draft) -> None:
        without("lm_head")(draft)
        draft.config |= {"tie_word_embeddings": True, "num_nextn_predict_layers": 1}
        draft.tensors[f"model.layers.{LAYERS}.eh_proj.weight"] = zeros(HIDDEN, 2 * HIDDEN)

    assert codes(check(tmp_path, spoil).findings) == set()


def test_other_tensor_names_are_not_called_missing(tmp_path: Path) -> None:
    def spoil(draft: Draft) -> None:
        draft.tensors = {name.replace("model.layers", "transformer.h"): t for name, t in draft.tensors.items()}

    assert codes(check(tmp_path, spoil).findings) == set()


def test_special_tokens_may_lie_in_the_embeddings_padding(tmp_path: Path) -> None:
    def spoil(draft: Draft) -> None:
        tokenizer_of(VOCABULARY + 1)(draft)
        draft.tensors["model.embed_tokens.weight"] = zeros(VOCABULARY + 8, HIDDEN)

    assert codes(check(tmp_path, spoil).findings) == set()


def test_chat_template_given_by_flag(tmp_path: Path) -> None:
    def spoil(draft: Draft) -> None:
        draft.chat_template = False

    assert codes(check(tmp_path, spoil).findings) == {"TARGET010"}
    assert codes(check(tmp_path, spoil, flags={"chat-template": "x.jinja"}).findings) == set()


def test_tiktoken_vocabulary(tmp_path: Path) -> None:
    target = made.llama_target()
    target.tokenizer_config = {
        "eos_token": {"content": "[EOS]"},
        "added_tokens_decoder": {"127": {"content": "[EOS]"}},
    }
    directory = target.write(tmp_path / "target")
    (directory / "tokenizer.json").unlink()
    (directory / "tiktoken.model").write_bytes(b"YQ== 0\nYg== 1\nYWI= 2\n")
    stack = made.stack()
    assert codes(run_preflight(stack, "baseline", model_dir=directory).findings) == set()
    (directory / "tiktoken.model").write_bytes(b"YQ== 0\nnot base64 1\n")
    assert codes(run_preflight(stack, "baseline", model_dir=directory).findings) == {"TARGET008"}


def test_cache_dtype_that_the_version_does_not_know(tmp_path: Path) -> None:
    target = made.llama_target().write(tmp_path / "target")
    stack = made.stack()
    stack = stack.model_copy(update={"memory": stack.memory.model_copy(update={"kv_cache_dtype": "fp6"})})
    assert codes(run_preflight(stack, "baseline", model_dir=target).findings) == {"TARGET018"}
