r"""Picture of a shape's step-cost run: measured and fitted steps, and what they predict for the whole target.

    OUTRIDER_MODELS=build/shapes python benchmarks/evidence/shape_figure.py docs/evidence/h200-kimi-shape figure.html \
        [--whole kimi-k2.5-rtx6000x8] [--public CELLS.csv]

The directory holds cells.jsonl and the stack that was served (*-stepcost.yaml). Public cells are drawn beside the
prediction.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plotly.subplots import make_subplots

if TYPE_CHECKING:
    import plotly.graph_objects as go

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)
COLOURS = {0: "#4477aa", 1: "#228833", 3: "#cc6677", 5: "#aa3377", 7: "#666666"}
RATE = "rate=0.5"  # accepted / drafted: about what the public cells have


def main() -> None:
    """Predict, draw, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("page", type=Path)
    parser.add_argument("--whole", default="kimi-k2.5-rtx6000x8")
    parser.add_argument("--public", type=Path)
    options = parser.parse_args()
    cells = [json.loads(line) for line in (options.run / "cells.jsonl").read_text(encoding="utf-8").splitlines()]
    stack = str(next(options.run.glob("*-stepcost.yaml")))
    titles = ("step time: measured (points) and fitted", f"k=3 on {options.whole}: predicted from these cells")
    figure = make_subplots(rows=1, cols=2, subplot_titles=titles, horizontal_spacing=0.1)
    for k in sorted({cell["k"] for cell in cells}):
        fitted = predicted(options.run, stack, None, f"step-k{k}" if k else "step-k3", str(k or 3))
        draw_steps(figure, k, cells, [row for row in fitted if row["k"] == k])
    draw_gain(figure, predicted(options.run, options.whole, stack, "eagle3", "3"), options.public)
    figure.update_xaxes(type="log", title="requests that decode together", tickvals=BATCHES)
    figure.update_yaxes(type="log", title="ms a step", tickvals=(2, 5, 10, 20, 40), row=1, col=1)
    figure.update_yaxes(title="speed against plain decoding", row=1, col=2)
    figure.update_layout(
        template="simple_white",
        width=1360,
        height=470,
        legend={"font": {"size": 11}},
        margin={"l": 60, "r": 20, "t": 40, "b": 50},
    )
    figure.write_html(options.page, include_plotlyjs=True, config={"displayModeBar": False})


def predicted(run: Path, stack: str, cells_of: str | None, variant: str, k: str) -> list[dict[str, Any]]:
    """What `outrider predict run` says at every batch."""
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "predictions.json"
        words = ["predict", "run", stack, "--cells", str(run / "cells.jsonl"), "--variant", variant, "--k", k]
        words += ["--context", "128", "--acceptance", RATE, "--dcp", "1", "--json", str(file)]
        words += ["--cells-of", cells_of] if cells_of else []
        for batch in BATCHES:
            words += ["--concurrency", str(batch)]
        subprocess.run([str(Path(sys.executable).with_name("outrider")), *words], check=True, stdout=subprocess.DEVNULL)
        rows: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))["predictions"]
    return sorted(rows, key=lambda row: row["concurrency"])


def draw_steps(figure: go.Figure, k: int, cells: list[dict[str, Any]], fitted: list[dict[str, Any]]) -> None:
    """One k: a line for the fit, points for the cells."""
    x, y = [row["concurrency"] for row in fitted], [row["step_s"]["mid"] * 1e3 for row in fitted]
    figure.add_scatter(
        x=x, y=y, line={"color": COLOURS[k], "dash": "dot"}, mode="lines", showlegend=False, row=1, col=1
    )
    own = [cell for cell in cells if cell["k"] == k]
    x = [cell["concurrency"] for cell in own]
    y = [cell["tpot_s"]["mean"] * 1e3 * (cell["tokens_per_step"] or 1) for cell in own]
    figure.add_scatter(x=x, y=y, mode="markers", marker={"color": COLOURS[k], "size": 9}, name=f"k={k}", row=1, col=1)


def draw_gain(figure: go.Figure, rows: list[dict[str, Any]], public: Path | None) -> None:
    """The predicted speedup with its interval, and public cells of short context."""
    gains = [(row["concurrency"], row["speedup"]) for row in rows if row["speedup"]]
    x = [batch for batch, _ in gains]
    band = [gain["high"] for _, gain in gains] + [gain["low"] for _, gain in reversed(gains)]
    figure.add_scatter(
        x=x + x[::-1],
        y=band,
        fill="toself",
        mode="none",
        fillcolor="rgba(204,102,119,.2)",
        name="95 % interval",
        row=1,
        col=2,
    )
    middle = [gain["mid"] for _, gain in gains]
    figure.add_scatter(x=x, y=middle, mode="lines", line={"color": COLOURS[3]}, name="predicted", row=1, col=2)
    if public:
        with public.open(encoding="utf-8") as file:
            found = [row for row in csv.DictReader(file) if row["dcp"] == "1" and float(row["ctx"]) == 0]
        x, y = [int(row["concurrency"]) for row in found], [float(row["speedup"]) for row in found]
        mark = {"color": "#222222", "size": 9, "symbol": "diamond"}
        figure.add_scatter(x=x, y=y, mode="markers", marker=mark, name="public cells, short context", row=1, col=2)
    figure.add_hline(y=1, line={"color": "#999999", "width": 1}, row=1, col=2)


if __name__ == "__main__":
    main()
