"""The vLLM adapter against recorded logs and scrapes of vLLM 0.32.0 (CPU build)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from outrider.engine import adapter
from outrider.engine.vllm import speculative_config
from outrider.engine.vllm_metrics import names_for
from outrider.errors import EngineError, StackError
from outrider.stack import Stack, find_stack, stack_from_text
from outrider.stack.loader import stacks_dir

FIXTURES = Path(__file__).parents[2] / "fixtures"
VLLM = adapter("vllm")


def launch(stack: Stack, variant: str, model_dir: Path | None = None, drafter_dir: Path | None = None) -> list[str]:
    made = VLLM.launch(stack, variant, host="127.0.0.1", port=8000, model_dir=model_dir, drafter_dir=drafter_dir)
    return list(made.argv)


def after(argv: list[str], flag: str) -> str:
    return argv[argv.index(flag) + 1]


def changed(old: str, new: str, name: str = "smollm2-cpu") -> Stack:
    text = (stacks_dir() / f"{name}.yaml").read_text(encoding="utf-8")
    assert old in text
    return stack_from_text(text.replace(old, new, 1))


def test_flagship_eagle3_is_the_complete_command() -> None:
    argv = launch(find_stack("kimi-k2.5-rtx6000x8"), "eagle3")
    assert argv[:3] == ["vllm", "serve", "moonshotai/Kimi-K2.5"]
    commit = "4d01dfe0332d63057c186e0b262165819efb6611"
    expected = {
        "--host": "127.0.0.1",
        "--served-model-name": "kimi-k2.5",
        "--revision": commit,
        "--code-revision": commit,
        "--tokenizer-revision": commit,
        "--max-model-len": "131072",
        "--tensor-parallel-size": "8",
        "--gpu-memory-utilization": "0.93",
        "--max-num-seqs": "128",
        "--tool-call-parser": "kimi_k2",
        "--reasoning-parser": "kimi_k2",
    }
    assert {flag: after(argv, flag) for flag in expected} == expected
    assert {"--trust-remote-code", "--enable-auto-tool-choice", "--language-model-only"} <= set(argv)
    assert json.loads(after(argv, "--speculative-config")) == {
        "method": "eagle3",
        "num_speculative_tokens": 3,
        "model": "lightseekorg/kimi-k2.5-eagle3-mla",
    }


def test_flagship_environment_has_the_nccl_profile_and_one_model_runner() -> None:
    made = VLLM.launch(
        find_stack("kimi-k2.5-rtx6000x8"), "baseline", host="h", port=1, model_dir=None, drafter_dir=None
    )
    assert made.env["NCCL_P2P_LEVEL"] == "SYS"
    assert made.env["VLLM_USE_V2_MODEL_RUNNER"] == "0"
    assert "HF_HUB_OFFLINE" not in made.env
    assert made.weight_bytes == 595_000_000_000


def test_local_files_replace_repository_and_revision_and_work_offline(tmp_path: Path) -> None:
    stack = find_stack("kimi-k2.5-rtx6000x8")
    made = VLLM.launch(stack, "eagle3", host="h", port=1, model_dir=tmp_path / "t", drafter_dir=tmp_path / "d")
    assert made.argv[2] == str(tmp_path / "t")
    assert "--revision" not in made.argv
    assert json.loads(after(list(made.argv), "--speculative-config"))["model"] == str(tmp_path / "d")
    assert made.env["HF_HUB_OFFLINE"] == "1"


def test_baseline_has_no_speculative_config() -> None:
    assert "--speculative-config" not in launch(find_stack("smollm2-cpu"), "baseline")


def test_cpu_build_starts_the_module_of_the_engines_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTRIDER_ENGINE_PYTHON", "/opt/engine/bin/python")
    argv = launch(find_stack("smollm2-cpu"), "ngram", model_dir=Path("/m"))
    assert argv[:3] == ["/opt/engine/bin/python", "-m", "vllm.entrypoints.openai.api_server"]
    assert after(argv, "--model") == "/m"


def test_schedule_is_translated_to_the_engines_own_form() -> None:
    stack = changed("      k: 3\n", "      k: 3\n      schedule: [[1, 4, 3], [5, 32, 0]]\n")
    speculation = stack.variants["ngram"].speculation
    assert speculation is not None
    assert speculative_config(speculation, None) == {
        "method": "ngram",
        "num_speculative_tokens": 3,
        "num_speculative_tokens_per_batch_size": [[1, 4, 3], [5, 32, 0]],
        "prompt_lookup_min": 3,
        "prompt_lookup_max": 5,
    }


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("true", ["--x"]),
        ("false", ["--no-x"]),
        ("7", ["--x", "7"]),
        ("[1, 2]", ["--x", "1", "2"]),
        ("{a: {b: 1}}", ["--x", '{"a":{"b":1}}']),
    ],
)
def test_flag_values_become_arguments(value: str, words: list[str]) -> None:
    argv = launch(changed("enforce-eager: true", f"x: {value}"), "baseline")
    at = argv.index(words[0])
    assert argv[at : at + len(words)] == words


def test_a_flag_that_the_schema_types_is_refused() -> None:
    with pytest.raises(StackError, match=r"written through target\.max_model_len"):
        launch(changed("enforce-eager: true", "max-model-len: 5"), "baseline")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("  cpu_kv_gib: 1", "  cpu_kv_gib: 1\n  kv_cache_dtype: fp8"),
        ("      k: 3\n", "      k: 3\n      options: {rejection_sample_method: fly}\n"),
        ("    enforce-eager: true", "    quantization: fp8"),
    ],
)
def test_lossy_settings_need_an_opt_in(old: str, new: str) -> None:
    stack = changed(old, new)
    with pytest.raises(StackError, match="output distribution"):
        launch(stack, "ngram")
    assert launch(stack.model_copy(update={"allow_lossy": True}), "ngram")


def test_startup_facts_are_read_from_a_recorded_log() -> None:
    log = (FIXTURES / "logs" / "vllm-0.32.0-cpu-ngram.log").read_text(encoding="utf-8")
    facts = VLLM.startup_facts(log.splitlines())
    assert (facts.version, facts.graph_mode, facts.model_runner) == ("0.32.0", "eager", "v1")
    assert (facts.kv_tokens, facts.spec_method) == (46592, "ngram")


def test_startup_facts_of_baseline_have_no_method() -> None:
    log = (FIXTURES / "logs" / "vllm-0.32.0-cpu-baseline.log").read_text(encoding="utf-8")
    assert VLLM.startup_facts(log.splitlines()).spec_method is None


def test_recorded_scrape_of_ngram() -> None:
    scrape = VLLM.read_metrics((FIXTURES / "metrics" / "vllm-0.32.0-ngram.txt").read_text(encoding="utf-8"))
    assert (scrape.generation_tokens, scrape.first_tokens, scrape.prompt_tokens) == (38, 2, 152)
    assert scrape.spec is not None
    assert (scrape.spec.drafts, scrape.spec.draft_tokens, scrape.spec.accepted_tokens) == (4, 12, 6)
    assert scrape.spec.accepted_per_pos == (2, 2, 2)
    assert scrape.spec.acceptance_length == pytest.approx(2.5)
    assert scrape.spec.per_position_conditional == pytest.approx((0.5, 1, 1))
    # 36 decoded tokens in 30 steps: 6 of them were accepted drafts.
    assert scrape.tokens_per_step == pytest.approx(36 / 30)
    assert scrape.tpot is not None
    assert scrape.tpot.count == 2


def test_recorded_scrape_of_baseline_has_no_speculation() -> None:
    scrape = VLLM.read_metrics((FIXTURES / "metrics" / "vllm-0.32.0-baseline.txt").read_text(encoding="utf-8"))
    assert scrape.spec is None
    assert scrape.tokens_per_step == 1


def test_engines_of_one_server_are_summed() -> None:
    text = (FIXTURES / "metrics" / "vllm-0.32.0-ngram.txt").read_text(encoding="utf-8")
    # Series of one family must stand together in an exposition.
    merged = "\n".join(
        line if 'engine="0"' not in line else line + "\n" + line.replace('engine="0"', 'engine="1"')
        for line in text.splitlines()
    )
    once, twice = VLLM.read_metrics(text), VLLM.read_metrics(merged + "\n")
    assert once.spec is not None
    assert twice.spec is not None
    assert twice.generation_tokens == 2 * once.generation_tokens  # type: ignore[operator]
    assert twice.spec.accepted_per_pos == tuple(2 * a for a in once.spec.accepted_per_pos)
    assert twice.tokens_per_step == once.tokens_per_step


def test_differences_between_scrapes() -> None:
    late = VLLM.read_metrics((FIXTURES / "metrics" / "vllm-0.32.0-ngram.txt").read_text(encoding="utf-8"))
    window = late.since(late)
    assert window.generation_tokens == 0
    assert window.tokens_per_step is None
    assert window.spec is not None
    assert window.spec.acceptance_length is None
    assert window.spec.per_position == ()
    assert window.running == late.running


@pytest.mark.parametrize("text", ["", "<html>", "python_info 1\n", "vllm:x{ 3\n"])
def test_a_page_that_is_not_vllms_is_refused(text: str) -> None:
    with pytest.raises(EngineError):
        VLLM.read_metrics(text)


def test_old_versions_use_old_names() -> None:
    assert names_for("0.32.0")["kv_cache_usage"] == "vllm:kv_cache_usage_perc"
    assert names_for("0.9.2")["kv_cache_usage"] == "vllm:gpu_cache_usage_perc"
    assert names_for("0.32.0")["itl"] == "vllm:inter_token_latency_seconds"
    assert names_for("0.8.0")["itl"] == "vllm:time_per_output_token_seconds"


def test_cache_salt_keeps_within_what_the_engine_accepts() -> None:
    one, other = (VLLM.isolated_cache(f"results/run@host/{name}" + "x" * 200)["cache_salt"] for name in "ab")
    assert one != other
    assert len(one) <= 128
    assert one.isalnum()


def test_unknown_engine_suggests_the_nearest() -> None:
    with pytest.raises(EngineError, match="did you mean 'vllm'"):
        adapter("vlm")
