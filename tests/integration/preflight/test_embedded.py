"""The embedded stack with its real files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outrider.preflight import run_preflight
from outrider.preflight.facts.shape import shape_of
from outrider.preflight.reading import LocalFiles, read_checkpoint
from outrider.preflight.shapes import reference
from outrider.stack import find_stack

if TYPE_CHECKING:
    from pathlib import Path


def test_embedded_stack_gives_no_error_and_no_advisory(smollm2_dir: Path) -> None:
    stack = find_stack("smollm2-cpu")
    for variant in ("baseline", "ngram"):
        report = run_preflight(stack, variant, model_dir=smollm2_dir)
        assert report.exit_code == 0, report.findings


def test_kv_tokens_are_what_the_engine_logs(smollm2_dir: Path) -> None:
    # vLLM 0.32.0 (CPU) with VLLM_CPU_KVCACHE_SPACE=1: "CPU KV cache size: 46,592 tokens".
    report = run_preflight(find_stack("smollm2-cpu"), "baseline", model_dir=smollm2_dir)
    assert report.memory[0].kv_tokens == 46_592


def test_shipped_reference_is_the_shape_of_the_real_config(smollm2_dir: Path) -> None:
    known = reference("HuggingFaceTB/SmolLM2-135M-Instruct")
    real = read_checkpoint(LocalFiles(smollm2_dir))
    assert known is not None
    assert known.config is not None
    assert real.config is not None
    assert shape_of(known.config) == shape_of(real.config)
