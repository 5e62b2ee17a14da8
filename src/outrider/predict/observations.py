"""Measured cells as the model sees them: read from `cells.jsonl`, the public CSV form, or step-cost lines."""

from __future__ import annotations

import csv
import json
import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from outrider.predict.acceptance import check_positions
from outrider.predict.errors import PredictError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from outrider.stack import Stack

_SPECULATIVE = re.compile(r"^(?P<variant>\w+?)_k(?P<k>\d+)_tok_s$")


@dataclass(frozen=True, slots=True)
class Observation:
    """One measured cell.

    Attributes:
        where: `file:line`.
        variant, workload: names; the workload is empty where the source has none.
        k: speculative tokens in force at this batch.
        batch: sequences that decoded together.
        context: mean tokens in the cache of each.
        context_ranks: decode context parallelism.
        rate: output tokens per second of one sequence, 1/TPOT.
        tokens_per_step: over the cell; 1 for plain decoding; None if it was not counted.
        positions: unconditional acceptance by position (accepted / drafts), if counted.
        drafted: share of steps of a sequence at which something was proposed; a look-up finds nothing at many.
        dynamic: a schedule chose k; such cells show what the dynamic path costs and are not fitted.
        latency: seconds as `tpot_mean`, `tpot_p95`, `ttft_p50`, ...; empty where the source has none.
    """

    where: str
    variant: str
    workload: str
    k: int
    batch: int
    context: float
    context_ranks: int
    rate: float
    tokens_per_step: float | None
    positions: tuple[float, ...] = ()
    drafted: float = 1.0
    dynamic: bool = False
    latency: Mapping[str, float] = field(default_factory=dict, compare=False)

    @property
    def place(self) -> tuple[str, int, float, int]:
        """What plain and speculative decoding are paired by."""
        return self.workload, self.batch, round(self.context / 64), self.context_ranks

    @property
    def step_s(self) -> float | None:
        """Seconds of one step; None if the tokens of a step were not counted."""
        return self.tokens_per_step / self.rate if self.tokens_per_step else None

    def columns(self) -> dict[str, Any]:
        """Names that a hold-out expression may use."""
        return {
            "variant": self.variant, "workload": self.workload, "k": self.k, "dynamic": self.dynamic,
            "batch": self.batch, "concurrency": self.batch,
            "context_tokens": self.context, "ctx": self.context, "dcp": self.context_ranks,
        }  # fmt: skip


def read_observations(file: Path, stack: Stack) -> list[Observation]:
    """All usable cells of a file.

    Args:
        file: `cells.jsonl` of a run, step-cost lines (`.jsonl`), or the public CSV form (`.csv`).
        stack: cells that carry another stack's hash are refused; sources without one are taken as this stack's.

    Raises:
        PredictError: unreadable, of another stack, contradictory, or without one usable cell.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PredictError(f"cells cannot be read from {file}", evidence=str(error)) from error
    reader = _from_csv if file.suffix == ".csv" else _from_lines
    return _usable(reader(text, file.name, stack), str(file))


def observations_of(rows: Sequence[tuple[str, Mapping[str, Any]]], stack: Stack) -> list[Observation]:
    """The same from cells in memory: pairs of a name and `Cell.to_json`.

    Raises:
        PredictError: as `read_observations`.
    """
    return _usable((_cell(row, where, stack) for where, row in rows), "this campaign")


def _usable(cells: Iterable[Observation | None], source: str) -> list[Observation]:
    found: list[Observation] = []
    failed = 0
    for cell in cells:
        if cell is None:
            failed += 1
        else:
            _check(cell)
            found.append(cell)
    if not found:
        raise PredictError(
            f"{source} holds no usable cell",
            evidence=f"{failed} failed or invalid" if failed else "it is empty",
            next_step="measure at least one cell, or predict from the stack alone without --cells",
        )
    return found


def _from_csv(text: str, name: str, stack: Stack) -> Iterator[Observation | None]:
    rows = csv.DictReader(text.splitlines())
    header = rows.fieldnames or []
    matches = [hit for column in header if (hit := _SPECULATIVE.match(column))]
    if not {"ctx", "concurrency", "base_tok_s"} <= set(header):
        raise PredictError(
            f"{name} is not in the CSV form of cells",
            evidence=f"columns: {', '.join(header) or 'none'}",
            next_step="it needs ctx, concurrency, base_tok_s and <variant>_k<k>_tok_s",
        )
    default_ranks = int(stack.engine.flags.get("decode-context-parallel-size", 1))
    for number, row in enumerate(rows, start=2):
        where = f"{name}:{number}"
        try:
            batch, context = int(row["concurrency"]), float(row["ctx"])
            ranks = int(row.get("dcp") or default_ranks)
            base = float(row["base_tok_s"])
            yield Observation(where, "baseline", "", 0, batch, context, ranks, base / batch, 1.0)
            for hit in matches:
                if not row[hit.string]:
                    continue
                speed, k = float(row[hit.string]), int(hit["k"])
                _consistent(row, where, base, speed, k)
                tokens = float(row["tokens_per_step"]) if row.get("tokens_per_step") else None
                yield Observation(where, hit["variant"], "", k, batch, context, ranks, speed / batch, tokens)
        except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
            raise PredictError("a line of cells has no usable number", evidence=f"{where}: {error}") from error


def _consistent(row: Mapping[str, str], where: str, base: float, speed: float, k: int) -> None:
    """Columns that say the same twice must agree: else units were mixed up."""
    claims = [("speedup", speed / base)]
    if row.get("accept_rate"):
        check_positions([float(row["accept_rate"])], where)
        claims.append(("tokens_per_step", 1 + k * float(row["accept_rate"])))
    for column, derived in claims:
        if row.get(column) and abs(float(row[column]) / derived - 1) > 0.05:
            raise PredictError(
                f"{column} contradicts the figures it comes from",
                evidence=f"{where}: {column} {row[column]}, the other columns give {derived:.3f}",
                next_step="check the units: tok/s of all users, accepted/drafted as a share",
            )


def _from_lines(text: str, name: str, stack: Stack) -> Iterator[Observation | None]:
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        where = f"{name}:{number}"
        try:
            row = json.loads(line)
            yield _step_cost(row, where) if "step_ms" in row else _cell(row, where, stack)
        except PredictError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError) as error:
            raise PredictError(
                "a line of cells is not in a known form", evidence=f"{where}: {type(error).__name__}: {error}"
            ) from error


def _step_cost(row: Mapping[str, Any], where: str) -> Observation:
    batch, tokens, tpot_s = int(row["batch"]), float(row["tokens_per_step"]), float(row["tpot_ms"]) / 1000
    if abs(float(row["step_ms"]) / (tpot_s * 1000 * tokens) - 1) > 0.05:
        raise PredictError(
            "step_ms contradicts tpot_ms x tokens_per_step",
            evidence=f"{where}: {row['step_ms']} against {tpot_s * 1000 * tokens:.3f}",
            next_step="check the units: both are milliseconds",
        )
    schedule = row.get("schedule")
    bands = json.loads(schedule) if isinstance(schedule, str) else schedule or []
    k = next((int(band[2]) for band in bands if band[0] <= batch <= band[1]), int(row["k"]))
    variant = "baseline" if not row["k"] else str(row["variant"])
    context, ranks = float(row.get("context_tokens", 64)), int(row.get("dcp", 1))
    return Observation(where, variant, "", k, batch, context, ranks, 1 / tpot_s, tokens, dynamic=bool(bands))


def _cell(row: Mapping[str, Any], where: str, stack: Stack) -> Observation | None:
    digest = row["provenance"]["stack_digest"]
    if digest != stack.digest():
        raise PredictError(
            "these cells belong to another stack",
            evidence=f"{where}: {row['stack']} {digest}, given {stack.name} {stack.digest()}",
            next_step="name the stack as it was measured",
        )
    tpot_s = (row.get("tpot_s") or {}).get("mean")
    if row["status"] not in {"ok", "flagged"} or not tpot_s:
        return None
    variant = stack.variants.get(row["variant"])
    spec = variant.speculation if variant else None
    if spec and spec.auto:
        return None  # its k changed while it was measured, so it says nothing about any
    if variant and variant.expert_budget:
        return None  # it reads fewer experts than the model says, and no decision may rest on it
    batch, k = int(row["concurrency"]), int(row["k"])
    if spec and spec.schedule:
        k = next((band[2] for band in spec.schedule if band[0] <= batch <= band[1]), k)
    # Half of the output stands in the cache on average.
    context = float(row.get("context_tokens") or 0) + row["tokens"] / max(row["requests"], 1) / 2
    positions = tuple(row.get("accepted_per_pos") or ())
    check_positions(positions, where)
    return Observation(
        where=where,
        variant=row["variant"],
        workload=row["workload"],
        k=k,
        batch=batch,
        context=context,
        context_ranks=int(stack.engine.flags.get("decode-context-parallel-size", 1)),
        rate=1 / tpot_s,
        tokens_per_step=row.get("tokens_per_step") or (1.0 if not k else None),
        positions=positions,
        drafted=(drafted_share(row) or 1.0) if k else 1.0,
        dynamic=bool(spec and spec.schedule),
        latency=_latency(row),
    )


def drafted_share(row: Mapping[str, Any]) -> float | None:
    """Drafting events / steps of a cell (`Cell.to_json`), from the engine's counters; None where it did not count."""
    engine, tokens = row.get("engine") or {}, row.get("tokens_per_step")
    drafts, made, first = (engine.get(name) for name in ("drafts", "generation_tokens", "first_tokens"))
    if drafts is None or made is None or first is None or not tokens or made <= first:
        return None
    return min(1.0, float(drafts) * float(tokens) / (float(made) - float(first)))


def _latency(row: Mapping[str, Any]) -> dict[str, float]:
    names = ("mean", "p50", "p90", "p95", "p99")
    return {
        f"{kind}_{name}": float(value)
        for kind in ("tpot", "ttft")
        for name in names
        if (value := (row.get(f"{kind}_s") or {}).get(name)) is not None
    }


def _check(cell: Observation) -> None:
    numbers = (cell.batch, cell.rate, cell.tokens_per_step or 1.0)
    if not all(math.isfinite(n) and n > 0 for n in numbers) or cell.context < 0:
        raise PredictError(
            "a cell has a figure that is not positive and finite",
            evidence=f"{cell.where}: batch {cell.batch}, rate {cell.rate:g}, tokens a step {cell.tokens_per_step}",
        )
    if cell.tokens_per_step and not 1 - 0.01 <= cell.tokens_per_step <= cell.k + 1.01:
        raise PredictError(
            f"{cell.tokens_per_step:g} tokens a step are impossible at k={cell.k}",
            evidence=cell.where,
            next_step="tokens per step lie between 1 and k+1",
        )
