"""Tables of a run for docs/evidence: rates and gains by place, or step times by k and batch.

    python benchmarks/evidence/tables.py CELLS.jsonl [--steps] [--beside STEP_COST_LINES.jsonl]

Prints Markdown. A figure is the mean over repeats; beside it stands half their range where there are several.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path
from statistics import fmean
from typing import Any

Rows = dict[tuple[str, int, str], list[dict[str, Any]]]


def main() -> None:
    """Read, group, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cells", type=Path)
    parser.add_argument("--steps", action="store_true", help="step times instead of rates")
    parser.add_argument("--beside", type=Path, help="step-cost lines of another run: adds their step times")
    options = parser.parse_args()
    rows, failed = read(options.cells)
    print(steps(rows, read_lines(options.beside)) if options.steps else rates(rows))
    if failed:
        print(f"\nNot measured: {', '.join(failed)}.")


def read(file: Path) -> tuple[Rows, list[str]]:
    """Cells by workload, concurrency and variant; and the names of those without figures."""
    rows: Rows = defaultdict(list)
    latest = {row["cell_id"]: row for row in map(json.loads, file.read_text(encoding="utf-8").splitlines())}
    failed = [name for name, row in latest.items() if row["status"] in {"failed", "invalid"}]
    for name, row in latest.items():
        if name not in failed:
            rows[row["workload"], row["concurrency"], row["variant"]].append(row)
    return rows, failed


def read_lines(file: Path | None) -> dict[tuple[int, int], float]:
    """Step times in ms by k and batch, static variants only."""
    if file is None:
        return {}
    lines = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    return {(row["k"], row["batch"]): row["step_ms"] for row in lines if not row["schedule"]}


def rates(rows: Rows) -> str:
    """One line a place: TPOT of baseline, then each variant's gain over it and its tokens a step."""
    variants = list(dict.fromkeys(variant for _, _, variant in rows if variant != "baseline"))
    lines = [
        "| workload | users | baseline, ms a token | tok/s | " + " | ".join(variants) + " |",
        "|---|---|---|---|" + "---|" * len(variants),
    ]
    for workload, users in dict.fromkeys((w, c) for w, c, _ in rows):
        plain = rows.get((workload, users, "baseline"))
        if not plain:
            continue
        base = fmean(tpot(row) for row in plain)
        speed = fmean(row["throughput_tok_s"] for row in plain)
        cells = [f"{base:.2f}{spread([tpot(row) for row in plain])}", f"{speed:,.0f}"]
        for variant in variants:
            own = rows.get((workload, users, variant))
            cells.append(gain(base, own) if own else "-")
        lines.append(f"| {workload} | {users} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def gain(base: float, own: list[dict[str, Any]]) -> str:
    """`1.52x (2.1 a step)`."""
    times = [tpot(row) for row in own]
    yields = [row["tokens_per_step"] for row in own if row["tokens_per_step"]]
    return f"{base / fmean(times):.2f}x{spread(times)}" + (f", {fmean(yields):.2f} a step" if yields else "")


def steps(rows: Rows, other: dict[tuple[int, int], float]) -> str:
    """One line a batch: step time at each k, its ratio to k=0, and the other run's."""
    ks = sorted({row["k"] for group in rows.values() for row in group})
    lines = [
        "| batch | " + " | ".join(f"k={k}, ms a step" for k in ks) + " |"
        + "".join(f" k={k} / k=0 |" for k in ks if k) + "".join(f" k={k} before |" for k in ks if other),
    ]  # fmt: skip
    lines.append("|---" * (lines[0].count("|") - 1) + "|")
    for batch in sorted({users for _, users, _ in rows}):
        by_k = {k: [step(r) for (_, c, _), g in rows.items() if c == batch for r in g if r["k"] == k] for k in ks}
        means = {k: fmean(times) for k, times in by_k.items() if times}
        cells = [f"{means[k]:.2f}{spread(by_k[k])}" if k in means else "-" for k in ks]
        cells += [f"{means[k] / means[0]:.2f}" if k in means and 0 in means else "-" for k in ks if k]
        cells += [f"{other[k, batch]:.2f}" if (k, batch) in other else "-" for k in ks if other]
        lines.append(f"| {batch} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def tpot(row: dict[str, Any]) -> float:
    """Mean time of a token, ms."""
    return float(row["tpot_s"]["mean"]) * 1000


def step(row: dict[str, Any]) -> float:
    """Time of a step, ms: of a token times the tokens of a step."""
    return tpot(row) * float(row["tokens_per_step"] or 1.0)


def spread(values: list[float]) -> str:
    """` +-1.2 %`: half the range of repeats; nothing for one."""
    if len(values) < 2:
        return ""
    return f" +-{(max(values) - min(values)) / 2 / fmean(values):.1%}".replace("%", " %")


if __name__ == "__main__":
    main()
