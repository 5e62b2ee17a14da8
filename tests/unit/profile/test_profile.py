from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from outrider.cli import app
from outrider.predict.shares import read_shares
from outrider.profile.errors import ProfileError
from outrider.profile.shares import shares_of
from outrider.profile.tables import classify
from outrider.profile.trace import Span, Trace, read_trace

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "allreduce"),
        ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(...)", "allreduce"),
        ("void marlin_moe_wna16::Marlin<__nv_bfloat16, ...>", "moe_gemm"),
        ("fused_moe_kernel", "moe_gemm"),
        ("_fwd_grouped_kernel_stage1_decode_grouped_attn", "attention"),
        ("flash_fwd_splitkv_mla_kernel", "attention"),
        ("void vllm::reshape_and_cache_flash_kernel<...>", "attention"),
        ("nvjet_tst_64x8_64x16_4x1_v_bz_TNN", "other_gemm"),
        ("void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16...>", "other_gemm"),
        ("aten::addmm", "other_gemm"),
        ("void at::native::vectorized_elementwise_kernel<4, ...>", "elementwise"),
        ("void vllm::rms_norm_kernel<...>", "elementwise"),
        ("_topk_topp_sampler_kernel", "sampling"),
        ("a_kernel_of_next_year", "unknown"),
    ],
)
def test_names_of_kernels(name: str, group: str) -> None:
    assert classify(name) == group


def event(name: str, ts: float, dur: float, cat: str = "kernel", **more: object) -> dict[str, object]:
    return {"ph": "X", "name": name, "ts": ts, "dur": dur, "cat": cat, "pid": 1, "tid": 1} | more


def trace_file(tmp_path: Path, *events: dict[str, object], name: str = "t.pt.trace.json") -> Path:
    file = tmp_path / name
    text = json.dumps({"traceEvents": list(events)}).encode()
    file.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    return file


STEP = [
    event("execute_context_0(0)_generation_1(1)", 0, 100, "gpu_user_annotation"),
    event("ncclDevKernel_AllReduce", 0, 50),
    event("fused_moe_kernel", 50, 10),
    event("nvjet_x", 55, 25, tid=2),
    event("mystery", 80, 5),
]


@pytest.mark.parametrize("name", ["t.pt.trace.json", "t.pt.trace.json.gz"])
def test_every_moment_of_a_gpu_step_is_counted_once(tmp_path: Path, name: str) -> None:
    found = shares_of(read_trace(trace_file(tmp_path, *STEP, name=name)))
    assert found.step_s == pytest.approx(100e-6)
    assert found.shares["allreduce"] == pytest.approx(0.50)
    assert found.shares["moe_gemm"] == pytest.approx(0.10)
    assert found.shares["other_gemm"] == pytest.approx(0.20)
    assert found.shares["unknown"] == pytest.approx(0.05)
    assert found.shares["launch"] == pytest.approx(0.15)
    assert found.unknown_names == (("mystery", pytest.approx(0.05)),)


@given(st.lists(st.tuples(st.floats(0, 1000), st.floats(0.5, 100)), min_size=1, max_size=30))
def test_shares_add_up_to_one_whatever_overlaps(pieces: list[tuple[float, float]]) -> None:
    spans = tuple(sorted((Span("gemm", a, a + d) for a, d in pieces), key=lambda s: (s.start, -s.end)))
    found = shares_of(Trace("gpu", spans, (), "made"), steps=2)
    assert sum(found.shares.values()) == pytest.approx(1)
    assert min(found.shares.values()) >= 0


def test_an_operator_s_own_time_leaves_out_what_it_calls() -> None:
    spans = (Span("aten::linear", 0, 100), Span("aten::addmm", 10, 90), Span("aten::copy_", 20, 30))
    found = shares_of(Trace("cpu", spans, (), "made"), steps=1)
    assert found.shares["elementwise"] == pytest.approx(0.1)
    assert found.shares["other_gemm"] == pytest.approx(0.9)


def test_a_real_cpu_trace_is_read(tmp_path: Path) -> None:
    layer = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.SiLU(), torch.nn.Linear(1024, 256))
    inputs = torch.randn(64, 256)
    with torch.no_grad(), torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        for _ in range(3):
            with torch.profiler.record_function("execute_model"):
                layer(inputs)
    file = tmp_path / "cpu.pt.trace.json"
    profiler.export_chrome_trace(str(file))
    found = shares_of(read_trace(file))
    assert found.steps == 3
    assert found.shares["other_gemm"] > 0.2
    assert found.shares["unknown"] < 0.1


def test_a_step_that_the_profiler_lays_out_in_pieces_counts_once(tmp_path: Path) -> None:
    """As vLLM 0.33 on two GPUs: one mark of the engine, eight copies over the kernels of its graph."""
    marks = [event("execute_context_0(0)_generation_1(1)", 1000 * n, 20, "user_annotation") for n in range(3)]
    pieces = [
        event("execute_context_0(0)_generation_1(1)", 1000 * n + 100 * i, 90, "gpu_user_annotation")
        for n in range(3)
        for i in range(8)
    ]
    kernels = [event("ncclDevKernel_AllReduce", piece["ts"], 80) for piece in pieces]  # type: ignore[arg-type]
    found = shares_of(read_trace(trace_file(tmp_path, *marks, *pieces, *kernels)))
    assert found.steps == 3
    assert found.step_s == pytest.approx((2000 + 790) / 3 * 1e-6)


def test_a_trace_without_markers_needs_its_steps_counted(tmp_path: Path) -> None:
    trace = read_trace(trace_file(tmp_path, *STEP[1:]))
    assert shares_of(trace).step_s is None
    assert shares_of(trace, steps=5).step_s == pytest.approx(17e-6)


@pytest.mark.parametrize("text", [b"{", b"{}", b"\x1f\x8bxx", b'{"traceEvents": []}', b"[1, 2]"])
def test_what_is_no_trace_is_refused(tmp_path: Path, text: bytes) -> None:
    file = tmp_path / "t.json"
    file.write_bytes(text)
    with pytest.raises(ProfileError):
        read_trace(file)


def test_the_command_s_json_feeds_the_model(tmp_path: Path) -> None:
    out = tmp_path / "profile.json"
    result = CliRunner().invoke(
        app, ["profile", "read", str(trace_file(tmp_path, *STEP)), "--batch", "4", "--json", str(out)]
    )
    assert result.exit_code == 0
    assert "allreduce" in result.output
    shares = read_shares(out)
    assert (shares.allreduce, shares.batch, shares.step_s) == (pytest.approx(0.5), 4, pytest.approx(1e-4))
