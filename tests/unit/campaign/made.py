"""Cells and requests made by hand, with known figures."""

from __future__ import annotations

from dataclasses import asdict

import polars as pl

from outrider.campaign.cell import Cell, CellKey, Provenance
from outrider.load import EngineWindow, Latency, LoadResult
from outrider.load.plan import Labels
from outrider.load.result import Finding, RequestRecord


def provenance(**changes: object) -> Provenance:
    facts: dict[str, object] = {
        "outrider": {"version": "0", "commit": None},
        "stack_digest": "d" * 16,
        "engine": {
            "name": "vllm",
            "pinned": "0.32.0",
            "build": "cpu",
            "version": "0.32.0",
            "attention_backend": None,
            "graph_mode": "eager",
            "model_runner": "v1",
            "kv_tokens": 1000,
        },
        "argv": ("python", "-m", "engine"),
        "env": {"A": "1"},
        "seed": 0,
        "host": {"cpu": "C", "cores": 2, "memory_gib": 8.0, "kernel": "6"},
    }
    return Provenance.model_validate(facts | changes)


def record(index: int, *, tpot_s: float | None = 0.02, outcome: str = "stop", phase: str = "measured") -> RequestRecord:
    return RequestRecord(
        index=index,
        prompt_id=f"p{index}",
        category="made",
        phase=phase,  # type: ignore[arg-type]
        scheduled_at_s=None,
        sent_at_s=float(index),
        first_at_s=index + 0.1,
        last_at_s=index + 1.0,
        ended_at_s=index + 1.0,
        lateness_s=0.0,
        connect_s=0.001,
        ttft_s=0.1,
        tpot_s=tpot_s,
        e2e_s=1.0,
        prompt_tokens=50,
        output_tokens=40,
        first_chunk_tokens=1,
        chunks=40,
        token_source="continuous_usage",
        finish_reason="stop",
        status=200,
        outcome=outcome,
        error="",
        text_sha256="0" * 64,
        text="made",
        unique_bigrams=0.9,
    )


def result(key: CellKey, *, tpot_s: float = 0.02, al: float | None = None) -> LoadResult:
    drafts = 100.0 if al else None
    return LoadResult(
        status="ok",
        model="m",
        endpoint="chat",
        ignore_eos=False,
        arrivals="closed",
        concurrency=key.concurrency,
        rate=None,
        labels=Labels(stack="s", variant=key.variant, workload=key.workload),
        workload_version=1,
        workload_digest="e" * 64,
        prompt_seed=0,
        window_s=10.0,
        window_start_unix=1.0,
        requests=4,
        ttft_s=Latency(mean=0.1, count=4),
        tpot_s=Latency(mean=tpot_s, count=4),
        icl_s=Latency(mean=tpot_s, count=100),
        e2e_s=Latency(mean=1.0, count=4),
        tokens=160,
        tokens_in_window=160,
        prompt_tokens=200,
        chunks=160,
        tokens_per_chunk=1.0,
        throughput_tok_s=16.0,
        goodput_req_s=0.4,
        token_source="continuous_usage",
        outcomes={"ok": 4},
        outcomes_unmeasured={},
        errors={},
        unique_bigram_ratio=0.9,
        validity=[],
        engine=EngineWindow(
            adapter="vllm",
            window_s=10.0,
            generation_tokens=160.0,
            first_tokens=4.0,
            tokens_per_step=156 / (156 - 100 * (al - 1)) if al else 1.0,
            al=al,
            drafts=drafts,
            accepted_tokens=100.0 * (al - 1) if al else None,
            accepted_per_pos=(0.5, 0.25, 0.1) if al else (),
        ),
    )


def cell(
    variant: str = "baseline",
    workload: str = "edit",
    concurrency: int = 1,
    repeat: int = 0,
    *,
    tpot_s: float = 0.02,
    al: float | None = None,
    error: str | None = None,
    started_at: str = "2026-01-01T00:00:00+00:00",
    findings: tuple[Finding, ...] = (),
) -> Cell:
    key = CellKey(variant=variant, workload=workload, concurrency=concurrency, repeat=repeat)
    load = None if error else result(key, tpot_s=tpot_s, al=al)
    return Cell(
        cell_id=key.id,
        run="r",
        stack="smollm2-cpu",
        variant=variant,
        k=0 if variant == "baseline" else 3,
        workload=workload,
        context_tokens=50,
        concurrency=concurrency,
        repeat=repeat,
        started_at=started_at,
        wall_s=12.0,
        tokens_per_step=load.engine.tokens_per_step if load and load.engine else None,
        al=al,
        accepted_per_pos=load.engine.accepted_per_pos if load and load.engine else (),
        status="failed" if error else ("flagged" if findings else "ok"),
        error=error,
        validity=findings,
        provenance=provenance(),
        load=load,
    )


def rows(variant: str, workload: str, concurrency: int, tpot_s: float, *, repeat: int = 0) -> pl.DataFrame:
    """Requests of one cell as the store gives them: eight prompts around `tpot_s`."""
    spread = [0.97, 0.98, 0.99, 1.0, 1.0, 1.01, 1.02, 1.03]
    key = {"variant": variant, "workload": workload, "concurrency": concurrency, "repeat": repeat}
    records = [record(i, tpot_s=tpot_s * share) for i, share in enumerate(spread)]
    return pl.DataFrame([{"cell_id": "x"} | key | asdict(r) for r in records], infer_schema_length=None)
