"""Picture of an expert budget: a step's time by how many experts it may read, measured and predicted.

    OUTRIDER_MODELS=build/shapes python benchmarks/evidence/budget_figure.py docs/evidence/h200-kimi-budget figure.html

The directory holds cells.jsonl and, if it has changed since, the stack as served. The prediction is fitted to the cells
without a budget.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import plotly.graph_objects as go

STACK, VARIANT = "kimi-shape8-h200", "static3"
COLOURS = ("#4477aa", "#228833", "#cc6677", "#aa3377")


def main() -> None:
    """Read, predict, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("page", type=Path)
    options = parser.parse_args()
    lines = (options.run / "cells.jsonl").read_text(encoding="utf-8").splitlines()
    cells = [cell for cell in map(json.loads, lines) if cell["variant"] != "census"]
    users = sorted({cell["concurrency"] for cell in cells})
    budgets = sorted({budget_of(cell) for cell in cells if cell["variant"].startswith(f"{VARIANT}-b")})
    served = options.run / f"{STACK}.yaml"
    predicted = predictions(str(served) if served.exists() else STACK, cells, users, budgets)
    figure = go.Figure()
    for colour, count in zip(COLOURS, users, strict=False):
        own = [cell for cell in cells if cell["concurrency"] == count and cell["variant"].startswith(f"{VARIANT}-b")]
        free = next(cell for cell in cells if (cell["concurrency"], cell["variant"]) == (count, VARIANT))
        look = {"color": colour}
        points = sorted((budget_of(cell), step_ms(cell)) for cell in own)
        name = f"{count} user{'s' * (count > 1)}"
        figure.add_scatter(x=[b for b, _ in points], y=[ms for _, ms in points], name=name, mode="markers",
                           marker=look | {"size": 10})  # fmt: skip
        figure.add_scatter(x=budgets, y=[predicted[count, b] for b in budgets], mode="lines", showlegend=False,
                           line=look | {"dash": "dot"})  # fmt: skip
        figure.add_hline(y=step_ms(free), line=look | {"width": 1}, opacity=0.4)
    figure.update_xaxes(type="log", title="experts of 384 that a layer may read", tickvals=budgets)
    figure.update_yaxes(title="ms a step, k=3", rangemode="tozero")
    figure.update_layout(
        template="simple_white", width=820, height=480, margin={"l": 60, "r": 20, "t": 50, "b": 50},
        title={"text": "measured (points), predicted (dotted), without a budget (thin)", "font": {"size": 13}},
    )  # fmt: skip
    figure.write_html(options.page, include_plotlyjs=True, config={"displayModeBar": False})


def budget_of(cell: dict[str, Any]) -> int:
    """Experts that the cell's variant may read; 0 for one without a budget."""
    found = re.search(r"-b(\d+)$", cell["variant"])
    return int(found.group(1)) if found else 0


def step_ms(cell: dict[str, Any]) -> float:
    """Milliseconds of a step: of a token, times the tokens of a step."""
    return float(cell["tpot_s"]["mean"]) * 1e3 * float(cell["tokens_per_step"] or 1)


def predictions(
    stack: str, cells: list[dict[str, Any]], users: list[int], budgets: list[int]
) -> dict[tuple[int, int], float]:
    """Milliseconds by users and budget, as `outrider predict budget` says from the cells without one."""
    with tempfile.TemporaryDirectory() as scratch:
        free, out = Path(scratch) / "cells.jsonl", Path(scratch) / "budget.json"
        free.write_text("".join(json.dumps(cell) + "\n" for cell in cells if not budget_of(cell)), encoding="utf-8")
        words = ["predict", "budget", stack, "--cells", str(free), "--variant", VARIANT, "--k", "3"]
        words += ["--context", "128", "--json", str(out)]
        words += [word for count in users for word in ("--concurrency", str(count))]
        words += [word for budget in budgets for word in ("--experts", str(budget))]
        subprocess.run([str(Path(sys.executable).with_name("outrider")), *words], check=True, stdout=subprocess.DEVNULL)
        rows = json.loads(out.read_text(encoding="utf-8"))["steps"]
    return {(row["batch"], row["experts"]): row["step_s"]["mid"] * 1e3 for row in rows if row["experts"]}


if __name__ == "__main__":
    main()
