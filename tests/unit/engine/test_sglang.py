"""The SGLang adapter against SGLang 0.5.23's own exposition, and the flagship's variant on it."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from outrider.engine import adapter, adapter_of
from outrider.errors import EngineError, StackError
from outrider.preflight import run_preflight
from outrider.runtime.container import container_launch
from outrider.runtime.render_compose import compose_project
from outrider.stack import Stack, find_stack, stack_from_text
from outrider.stack.loader import stacks_dir

SCRAPE = Path(__file__).parents[2] / "fixtures" / "metrics" / "sglang-0.5.23-eagle3.txt"
SGLANG = adapter("sglang")
KIMI = "kimi-k2.5-rtx6000x8"


def launch(stack: Stack, **given: object) -> list[str]:
    where = {"host": "127.0.0.1", "port": 8000, "model_dir": None, "drafter_dir": None} | given
    return list(adapter_of(stack, "eagle3-sglang").launch(stack, "eagle3-sglang", **where).argv)


def changed(old: str, new: str) -> Stack:
    text = (stacks_dir() / f"{KIMI}.yaml").read_text(encoding="utf-8")
    before, mark, after = text.partition("  eagle3-sglang:")
    assert old in after
    return stack_from_text(before + mark + after.replace(old, new, 1))


def test_a_variant_names_its_own_engine_and_takes_none_of_the_stacks_flags() -> None:
    stack = find_stack(KIMI)
    assert (stack.engine_of("eagle3").name, stack.engine_of("eagle3-sglang").name) == ("vllm", "sglang")
    argv = launch(stack)
    assert argv[:5] == ["python3", "-m", "sglang.launch_server", "--model-path", "moonshotai/Kimi-K2.5"]
    after = dict(pairwise(argv))
    assert {k: after[k] for k in after if k.startswith("--spec") or k in {"--tp-size", "--context-length"}} == {
        "--speculative-algorithm": "EAGLE3",
        "--speculative-draft-model-path": "lightseekorg/kimi-k2.5-eagle3-mla",
        "--speculative-num-steps": "3",
        "--speculative-eagle-topk": "1",
        "--speculative-num-draft-tokens": "4",
        "--tp-size": "8",
        "--context-length": "131072",
    }
    assert {"--enable-metrics", "--trust-remote-code"} <= set(argv)
    assert not {"--language-model-only", "--enable-auto-tool-choice", "--gpu-memory-utilization"} & set(argv)


def test_the_environment_has_the_nodes_nccl_profile_and_nothing_of_vllms() -> None:
    env = SGLANG.launch(find_stack(KIMI), "eagle3-sglang", host="h", port=1, model_dir=None, drafter_dir=None).env
    assert env["NCCL_P2P_LEVEL"] == "SYS"
    assert not [name for name in env if name.startswith("VLLM_")]


def test_local_files_replace_repository_and_revision(tmp_path: Path) -> None:
    argv = launch(find_stack(KIMI), model_dir=tmp_path / "t", drafter_dir=tmp_path / "d")
    assert argv[argv.index("--model-path") + 1] == str(tmp_path / "t")
    assert argv[argv.index("--speculative-draft-model-path") + 1] == str(tmp_path / "d")
    assert "--revision" not in argv


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("method: eagle3", "method: dflash", "method dflash .* is not served on SGLang"),
        ("        reasoning-parser: kimi_k2", "        tp-size: 4", r"written through parallel\.tensor"),
        ("      k: 3\n", "      k: 3\n      options: {rejection_sample_method: fly}\n", "is vLLM's own"),
        (
            "        reasoning-parser: kimi_k2",
            "        speculative-accept-threshold-acc: 0.8",
            "output distribution",
        ),
    ],
)
def test_what_sglang_would_not_do_is_refused_and_preflight_says_so(old: str, new: str, words: str) -> None:
    stack = changed(old, new)
    with pytest.raises(StackError, match=words):
        launch(stack)
    codes = [f.code for f in run_preflight(stack, "eagle3-sglang").findings]
    assert "SPEC020" in codes


def test_preflight_knows_the_variant_and_says_that_it_has_no_table() -> None:
    report = run_preflight(find_stack(KIMI), "eagle3-sglang")
    assert report.exit_code != 1
    seen = {f.code: f.evidence for f in report.findings}
    assert seen["TARGET017"] == "sglang 0.5.23"


def test_its_container_is_the_engines_own_image_with_a_check_that_needs_no_outrider() -> None:
    stack = find_stack(KIMI)
    services = compose_project(stack, ("eagle3", "eagle3-sglang"), "1")["services"]
    assert "image" not in services["eagle3"]
    own = services["eagle3-sglang"]
    assert own["image"] == "${OUTRIDER_SGLANG_IMAGE:-lmsysorg/sglang:v0.5.23}"
    assert "outrider" not in " ".join(own["healthcheck"]["test"])
    assert container_launch(stack, "eagle3-sglang").env["HOME"] == "/var/cache/outrider"


def test_scrape_of_its_own_collectors() -> None:
    scrape = SGLANG.read_metrics(SCRAPE.read_text(encoding="utf-8"))
    assert (scrape.generation_tokens, scrape.first_tokens, scrape.prompt_tokens) == (1300, 4, 2754)
    assert (scrape.running, scrape.waiting, scrape.kv_cache_usage) == (2, 1, 0.28)
    assert scrape.spec is not None
    # 1300 tokens of 4 requests in 475 verified steps: 1300 - 4 - 475 were accepted drafts.
    assert (scrape.spec.drafts, scrape.spec.accepted_tokens) == (475, 821)
    assert scrape.spec.draft_tokens == 3 * 475
    assert scrape.tokens_per_step == pytest.approx(1296 / 475)
    assert scrape.spec.acceptance_length == pytest.approx(scrape.tokens_per_step)
    assert scrape.tpot is not None
    assert scrape.tpot.count == 4
    assert scrape.start_time is None


def test_requests_of_tensor_parallel_ranks_count_once_and_of_data_parallel_ranks_each() -> None:
    text = "".join(
        f'sglang:num_running_reqs{{dp_rank="{dp}",tp_rank="{tp}"}} {2 + dp}\n' for dp in (0, 1) for tp in (0, 1)
    )
    assert SGLANG.read_metrics("# TYPE sglang:num_running_reqs gauge\n" + text).running == 5


def test_a_page_of_another_engine_is_refused() -> None:
    with pytest.raises(EngineError, match="no SGLang metrics"):
        SGLANG.read_metrics("vllm:x 1\n")
