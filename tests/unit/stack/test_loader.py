"""Every mistake in a stack is reported as file:line, the field, what is allowed, and what was meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from outrider.errors import StackError
from outrider.stack import Stack, find_stack, list_stacks, load_stack, stack_from_text
from outrider.stack.loader import stacks_dir

TEXT = (stacks_dir() / "smollm2-cpu.yaml").read_text(encoding="utf-8")


def broken(old: str, new: str) -> str:
    """The message for the shipped stack with one place changed."""
    assert old in TEXT
    with pytest.raises(StackError) as caught:
        stack_from_text(TEXT.replace(old, new, 1), "s.yaml")
    return str(caught.value)


def line_of(text: str) -> int:
    return next(i for i, line in enumerate(TEXT.splitlines(), start=1) if text in line)


@pytest.mark.parametrize("file", list_stacks(), ids=lambda file: file.stem)
def test_shipped_stack_loads(file: Path) -> None:
    stack = load_stack(file)
    assert isinstance(stack, Stack)
    assert "baseline" in stack.variants


def test_unknown_field_names_line_allowed_fields_and_the_nearest() -> None:
    message = broken("max_model_len: 2048", "max_model_length: 2048")
    assert f"s.yaml:{line_of('max_model_len')}: target.max_model_length: unknown field" in message
    assert "did you mean 'max_model_len'?" in message
    assert "allowed here: dtype, license, max_model_len, model" in message


def test_unknown_field_inside_a_variant_lists_that_levels_fields() -> None:
    message = broken("      lookup_min: 3", "      lookup_minimum: 3")
    assert "variants.ngram.speculation.lookup_minimum: unknown field; did you mean 'lookup_min'?" in message


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ("k: 3", "k: three", "variants.ngram.speculation.k"),
        ("cpu_kv_gib: 1", "cpu_kv_gib: [1]", "memory.cpu_kv_gib"),
        ("build: cpu", "build: tpu", "engine.build"),
        ("concurrency: [1, 4]", "concurrency: [1, 0]", "campaign.concurrency.1"),
        ("enforce-eager: true", "enforce-eager: null", "engine.flags.enforce-eager"),
        ("version: 0.32.0\n  build", "version: latest\n  build", "engine.version"),
    ],
)
def test_wrong_value_names_its_line_and_what_was_given(old: str, new: str, field: str) -> None:
    message = broken(old, new)
    assert f"s.yaml:{line_of(old.splitlines()[0])}: {field}: " in message
    assert "got" in message or "a flag is" in message


def test_all_mistakes_are_told_at_once() -> None:
    text = TEXT.replace("k: 3", "k: x", 1).replace("build: cpu", "build: tpu")
    with pytest.raises(StackError, match="2 mistakes"):
        stack_from_text(text)


def test_missing_field_is_named() -> None:
    assert "target.served_name: Field required" in broken("  served_name: smollm2-135m\n", "")


def test_key_written_twice_is_refused_with_both_lines() -> None:
    message = broken("  max_model_len: 2048", "  max_model_len: 2048\n  max_model_len: 4096")
    assert "target.max_model_len is written twice" in message
    assert f"first at line {line_of('max_model_len')}" in message


def test_broken_yaml_names_the_line() -> None:
    assert "s.yaml:" in broken("variants:", "variants: [")


@pytest.mark.parametrize("text", ["", "- a\n", "just text", "null"])
def test_a_file_that_is_no_mapping_is_refused(text: str) -> None:
    with pytest.raises(StackError, match="mapping"):
        stack_from_text(text)


def test_unknown_variant_suggests_the_nearest() -> None:
    with pytest.raises(StackError, match="did you mean 'ngram'"):
        find_stack("smollm2-cpu").variant("n-gram")


def test_unknown_stack_suggests_the_nearest() -> None:
    with pytest.raises(StackError, match="did you mean 'smollm2-cpu'"):
        find_stack("smolm2-cpu")


def test_file_must_bear_the_name_it_declares(tmp_path: Path) -> None:
    file = tmp_path / "other.yaml"
    file.write_text(TEXT, encoding="utf-8")
    with pytest.raises(StackError, match=r"rename one of them: smollm2-cpu\.yaml"):
        load_stack(file)


def test_absent_and_binary_files_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(StackError, match="No such file"):
        load_stack(tmp_path / "absent.yaml")
    binary = tmp_path / "b.yaml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(StackError, match="not UTF-8"):
        load_stack(binary)


def test_remote_code_needs_a_pinned_revision() -> None:
    assert "needs `revision`" in broken("  dtype: bfloat16", "  dtype: bfloat16\n  trust_remote_code: true")


@pytest.mark.parametrize(
    ("speculation", "message"),
    [
        ("method: eagle3\n      k: 3", "needs `drafter`"),
        ("method: ngram\n      k: 3\n      drafter: {model: a/b}", "takes no `drafter`"),
        ("method: suffix\n      k: 3\n      lookup_min: 2", "belong to n-gram methods"),
        ("method: ngram\n      k: 3\n      lookup_min: 6\n      lookup_max: 5", "above lookup_max"),
        ("method: ngram\n      k: 3\n      schedule: [[2, 4, 3]]", "must start at batch 1"),
        ("method: ngram\n      k: 3\n      schedule: [[1, 4, 3], [6, 8, 1]]", "must start at batch 5"),
        ("method: ngram\n      k: 3\n      schedule: [[1, 4, 5]]", "upper bound"),
        ("method: ngram\n      k: 3\n      schedule: [[1, 0, 3]]", "last batch >= first batch"),
    ],
)
def test_speculation_that_cannot_work_is_refused(speculation: str, message: str) -> None:
    old = "method: ngram\n      k: 3\n      # 3, not 2: two-token matches corrupt tool calls (vllm 40875).\n"
    old += "      lookup_min: 3\n      lookup_max: 5"
    assert message in broken(old, speculation)


def test_tensor_parallel_beyond_the_node_is_refused() -> None:
    flagship = (stacks_dir() / "kimi-k2.5-rtx6000x8.yaml").read_text(encoding="utf-8")
    with pytest.raises(StackError, match=r"need 16 GPUs, `node\.gpus` is 8"):
        stack_from_text(flagship.replace("tensor: 8", "tensor: 16"))


def test_digest_follows_what_is_served_but_not_what_is_measured() -> None:
    stack = stack_from_text(TEXT)
    assert stack_from_text(TEXT.replace("repeats: 2", "repeats: 3")).digest() == stack.digest()
    assert stack_from_text(TEXT.replace("lookup_max: 5", "lookup_max: 4")).digest() != stack.digest()
