"""How `auto` reaches the engine: flags, schedule and settings, and what is refused before anything starts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from outrider.engine import adapter
from outrider.errors import StackError
from outrider.runtime.container import container_launch
from outrider.stack import Stack, find_stack, list_stacks, stack_from_text
from outrider.stack.loader import stacks_dir
from outrider.vllm_ext.settings import Settings, read_settings

VLLM = adapter("vllm")


def launched(stack: Stack, variant: str = "eagle3-auto") -> tuple[list[str], dict[str, str]]:
    made = VLLM.launch(stack, variant, host="127.0.0.1", port=8000, model_dir=None, drafter_dir=None)
    return list(made.argv), dict(made.env)


def schedule(argv: list[str]) -> list[list[int]]:
    config = json.loads(argv[argv.index("--speculative-config") + 1])
    return list(config["num_speculative_tokens_per_batch_size"])


def changed(*pairs: tuple[str, str]) -> Stack:
    text = (stacks_dir() / "smollm2-cpu.yaml").read_text(encoding="utf-8")
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    return stack_from_text(text)


@pytest.mark.parametrize("file", list_stacks(), ids=lambda file: file.stem)
def test_every_stack_has_a_variant_that_chooses_k_itself_outside_its_default_campaign(file: Path) -> None:
    stack = find_stack(file.stem)
    argv, env = launched(stack)

    assert argv[argv.index("--scheduler-cls") + 1] == "outrider.vllm_ext.scheduler.UtilityScheduler"
    assert argv[argv.index("--middleware") + 1] == "outrider.vllm_ext.metrics.UtilityMetrics"
    assert isinstance(read_settings(env), Settings)
    assert "eagle3-auto" not in stack.campaign.variants
    assert stack.campaign.variants, "an empty list would mean all"


def test_other_variants_run_the_engines_own_scheduler() -> None:
    argv, env = launched(find_stack("smollm2-cpu"), "eagle3")

    assert "--scheduler-cls" not in argv
    assert "OUTRIDER_UTILITY" not in env


def test_the_engine_is_told_every_k_so_that_it_captures_graphs_for_them_all() -> None:
    argv, env = launched(find_stack("smollm2-cpu"), "ngram-auto")

    assert schedule(argv) == [[1, 29, 3], [30, 30, 0], [31, 31, 1], [32, 32, 2]]
    assert read_settings(env).prior == ((1, 32, 3),)
    assert read_settings(env).ks == (0, 1, 2, 3)


def test_an_emitted_schedule_is_the_prior() -> None:
    emitted = "      k: 3\n      schedule: [[1, 4, 3], [5, 31, 1], [32, 64, 0]]\n      auto: true\n"
    argv, env = launched(changed(("      k: 3\n      auto: true\n", emitted)), "ngram-auto")

    assert read_settings(env).prior == ((1, 4, 3), (5, 31, 1), (32, 64, 0))
    assert schedule(argv) == [[1, 4, 3], [5, 30, 1], [31, 31, 0], [32, 32, 2]]


@pytest.mark.parametrize(
    ("pair", "cause"),
    [
        (("memory:\n", "parallel:\n  data: 2\nmemory:\n"), "data parallel ranks"),
        (("  max_num_seqs: 32\n", ""), "largest batch"),
        (("method: ngram\n      k: 3\n      auto", "method: suffix\n      k: 3\n      auto"), "same number of tokens"),
    ],
)
def test_what_cannot_change_k_is_refused(pair: tuple[str, str], cause: str) -> None:
    extra = [("      lookup_min: 3\n      lookup_max: 5\n", "")] if "suffix" in pair[1] else []
    extra += [("      # 3, not 2: two-token matches corrupt tool calls (vllm 40875).\n", "")] if extra else []
    with pytest.raises(StackError, match=cause):
        launched(changed(pair, *extra), "ngram-auto")


def test_the_scheduler_is_written_through_auto_and_not_as_a_flag() -> None:
    stack = changed(("    enforce-eager: true\n", "    enforce-eager: true\n    scheduler-cls: mine.Scheduler\n"))
    with pytest.raises(StackError, match=r"scheduler-cls is written through variants\.\*\.speculation\.auto"):
        launched(stack)


def test_another_interpreter_finds_the_scheduler_and_a_container_gets_no_path_of_the_host(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OUTRIDER_ENGINE_PYTHON", str(tmp_path / "bin" / "python"))
    stack = find_stack("smollm2-cpu")

    assert (Path(launched(stack)[1]["PYTHONPATH"]) / "outrider" / "vllm_ext").is_dir()
    assert "PYTHONPATH" not in container_launch(stack, "eagle3-auto").env
