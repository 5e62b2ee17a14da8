"""`outrider decide`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from outrider.campaign.store import RunStore
from outrider.decide.decision import Decision, Question, contexts_of, decide
from outrider.decide.documents import decision_json, evidence_lines
from outrider.decide.errors import DecideError
from outrider.decide.overlay import overlay_text, write_overlay
from outrider.decide.probe import Probe, read_probe, recommended
from outrider.decide.slo import Objective, Slo
from outrider.decide.training_cost import training_cost
from outrider.predict.commands import ConfigOption, parse_k, read_config
from outrider.predict.observations import read_observations
from outrider.predict.session import open_session
from outrider.predict.shares import read_shares
from outrider.report import write_report
from outrider.report.outlook import outlook_of
from outrider.stack import find_stack

if TYPE_CHECKING:
    from outrider.decide.options import Paired
    from outrider.stack import Stack

_GATE_COLOURS = {"go": "green", "no-go": "red", "measure": "yellow"}


def decide_command(
    stack: Annotated[str, typer.Argument(help="Name of a shipped stack, or a YAML file.")],
    cells: Annotated[Path | None, typer.Option(help="cells.jsonl, step-cost lines, or the CSV form.")] = None,
    profile: Annotated[Path | None, typer.Option(help="Decode profile: step_ms and shares, as JSON.")] = None,
    acceptance: Annotated[str | None, typer.Option(help="al=2.5, rate=0.5, conditional=0.7, or by position.")] = None,
    contexts: Annotated[
        list[int] | None, typer.Option("--context", min=0, help="Middle of a context band; may be repeated.")
    ] = None,
    concurrency: Annotated[list[int] | None, typer.Option("--concurrency", min=1, help="May be repeated.")] = None,
    workload: Annotated[str, typer.Option(help="Whose acceptance counts. Default: the cells' commonest.")] = "",
    k: Annotated[str | None, typer.Option(help="Candidates: 3, 1..7, or 1,3,5. Default: 1 to each variant's.")] = None,
    dcp: Annotated[int, typer.Option(min=0, help="Decode context parallelism. Default: the stack's.")] = 0,
    objective: Annotated[str, typer.Option(help="tpot, or throughput first.")] = "tpot",
    percentile: Annotated[int, typer.Option(help="Requests that must keep the limits; 0: their mean.")] = 0,
    max_tpot_ms: Annotated[float | None, typer.Option(help="Limit on TPOT.")] = None,
    max_ttft_ms: Annotated[float | None, typer.Option(help="Limit on TTFT; judged where it was measured.")] = None,
    probe: Annotated[Path | None, typer.Option(help="probe.json of `outrider probe` on the emitted stack.")] = None,
    emit: Annotated[Path | None, typer.Option(help="Write the stack with its schedules; the stem is its name.")] = None,
    config: ConfigOption = None,
    report: Annotated[Path | None, typer.Option(help="Write the decision as a page (HTML).")] = None,
    json_to: Annotated[
        str | None, typer.Option("--json", metavar="PATH", help="Write the decision as JSON; - is standard output.")
    ] = None,
) -> None:
    """Say which variant and k to use where, what would change that, and emit the configuration."""
    chosen = find_stack(stack)
    observed = read_observations(cells, chosen) if cells else []
    session = open_session(
        chosen,
        observed,
        shares=read_shares(profile) if profile else None,
        acceptance=acceptance,
        config=read_config(config),
    )
    loads = tuple(concurrency or sorted({c.batch for c in observed} or chosen.campaign.concurrency))
    question = Question(
        slo=Slo(_objective(objective), percentile, _seconds(max_tpot_ms), _seconds(max_ttft_ms)),
        contexts=tuple(map(float, contexts)) if contexts else contexts_of(observed, chosen.target.max_model_len),
        concurrency=loads,
        workload=workload,
        ks=tuple(parse_k(k)) if k else (),
        context_ranks=dcp,
    )
    found = decide(session, observed, question, training_cost(chosen), _paired(cells))
    probes = read_probe(probe) if probe else []
    good, verdict = _recommended(chosen, found, probes)
    if report and not observed:
        raise typer.BadParameter("--report shows what was measured: it needs --cells")
    console = Console(stderr=json_to == "-", highlight=False)
    if json_to:
        text = json.dumps(decision_json(chosen, session.fit, found, probes, verdict), indent=2)
        if json_to == "-":
            sys.stdout.write(text + "\n")
        else:
            Path(json_to).write_text(text + "\n", encoding="utf-8")
    if json_to != "-":
        _show(chosen, found, console)
        console.print(f"[{'green' if good else 'yellow'}]{verdict}[/]", soft_wrap=True)
    if report:
        page = write_report(
            report,
            stack=chosen,
            cells=[],
            points=[],
            drift=None,
            outlook=outlook_of(chosen, observed),
            title=cells.name if cells else "",
        )
        console.print(str(page), soft_wrap=True)
    if emit:
        schedules = {e.name: (e.source, e.schedule.bands, _describe(found, e.name)) for e in found.emitted
                     if e.schedule.largest_k}  # fmt: skip
        if not schedules:
            raise DecideError(
                "there is no schedule to emit: speculation is off at every batch size",
                evidence="; ".join(f"{g.name}: {g.why}" for g in found.gates),
                next_step="serve baseline",
            )
        evidence = evidence_lines(chosen, session.fit, found, verdict)
        file = write_overlay(emit, overlay_text(chosen, emit.stem, schedules, evidence, workload=found.workload))
        console.print(f"{file}\nprobe it: outrider probe {file}", soft_wrap=True)


def _show(stack: Stack, found: Decision, console: Console) -> None:
    table = Table(title=f"{stack.name}: use", title_justify="left", header_style="bold", box=SIMPLE_HEAD, padding=0)
    for column in ("context", "users", "variant", "k", "TPOT ms", "tok/s", "SLO", "why"):
        table.add_column(column, justify="left" if column in {"variant", "SLO", "why"} else "right")
    for choice in found.choices:
        best = choice.best
        table.add_row(
            choice.band.name, str(choice.batch), best.variant, str(best.k), f"{best.tpot_s.mid * 1000:.1f}",
            f"{best.throughput_tok_s.mid:.0f}", choice.slo, choice.why,
        )  # fmt: skip
    console.print(table)
    for band, choice in found.capacity.items():
        console.print(
            f"most throughput at {band.name} tokens: {choice.best.throughput_tok_s.mid:.0f} tok/s, "
            f"{choice.batch} users, {choice.best.variant} k={choice.best.k}"
        )
    for gate in found.gates:
        console.print(f"gate {gate.name}: [{_GATE_COLOURS[gate.verdict]}]{gate.verdict}[/] {gate.why}", soft_wrap=True)
        for line in gate.evidence:
            console.print(f"    {line}", soft_wrap=True)
    for e in found.emitted:
        bands = json.dumps([list(band) for band in e.schedule.bands])
        console.print(
            f"{e.name} ({e.source}, {e.band.name} tokens): num_speculative_tokens_per_batch_size {bands}, "
            f"{e.schedule.gain:.2f}x; best single k={e.schedule.static_k} {e.schedule.static_gain:.2f}x"
            + ("" if e.schedule.worthwhile else "; a schedule is not worth it"),
            soft_wrap=True,
        )
    if found.left_out:
        console.print(f"{found.left_out} options are left out: their tokens do not fit into the KV cache")


def _recommended(stack: Stack, found: Decision, probes: list[Probe]) -> tuple[bool, str]:
    own = next((e for e in found.emitted if e.band == found.default_band), None)
    if own is None:
        return False, "no schedule is emitted for the default band: plain decoding, or one k, is served"
    spec = stack.variants[own.source].speculation
    return recommended(spec.method if spec else "", own.schedule.bands, probes)


def _paired(cells: Path | None) -> Paired:
    """Speedups over paired prompts, where the cells lie in a run that kept its requests: tighter than means."""
    if cells is None or cells.name != "cells.jsonl" or not (cells.parent / "requests.parquet").is_file():
        return {}
    points = RunStore(cells.parent).points()
    return {(p.workload, p.variant, p.concurrency): p.speedup for p in points if p.speedup and p.usable}


def _describe(found: Decision, name: str) -> str:
    own = next(e for e in found.emitted if e.name == name)
    return f"{own.source} with k by batch size, for contexts of {own.band.name} tokens"


def _objective(word: str) -> Objective:
    if word == "tpot":
        return "tpot"
    if word == "throughput":
        return "throughput"
    raise typer.BadParameter(f"objective {word!r}: tpot or throughput")


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000
