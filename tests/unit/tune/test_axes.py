from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest
from tests.unit.campaign.made import cell, rows
from typer.testing import CliRunner

from outrider.campaign.compare import compare
from outrider.cli import app
from outrider.engine import adapter
from outrider.stack import find_stack, stack_from_text
from outrider.tune.axes import TuneError, alternatives, judge, tuned_stack, tuning_stack

if TYPE_CHECKING:
    from outrider.campaign.compare import Point

CPU, FLAGSHIP = find_stack("smollm2-cpu"), find_stack("kimi-k2.5-rtx6000x8")


def points(**gains: tuple[float, float]) -> list[Point]:
    """Alternatives with their speedups at one and at four users."""
    cells, requests = [], []
    for index, users in enumerate((1, 4)):
        cells.append(cell("baseline", "edit", users))
        requests.append(rows("baseline", "edit", users, 0.02))
        for name, gain in gains.items():
            cells.append(cell(name, "edit", users, tpot_s=0.02 / gain[index]))
            requests.append(rows(name, "edit", users, 0.02 / gain[index]))
    return compare(cells, pl.concat(requests))


def test_what_is_in_force_already_is_no_alternative() -> None:
    assert list(alternatives(CPU, "graphs")) == ["compiled"]
    assert "runner-v1" not in alternatives(FLAGSHIP, "runner")
    assert "latency" not in alternatives(FLAGSHIP, "nccl")


def test_alternatives_become_variants_that_the_engine_is_started_with() -> None:
    tuning = tuning_stack(CPU, "graphs")
    argv = adapter("vllm").launch(tuning, "compiled", host="h", port=1, model_dir=None, drafter_dir=None).argv
    assert "--no-enforce-eager" in argv
    own = adapter("vllm").launch(tuning, "baseline", host="h", port=1, model_dir=None, drafter_dir=None).argv
    assert "--enforce-eager" in own
    nccl = adapter("vllm").launch(tuning_stack(FLAGSHIP, "nccl"), "throughput", host="h", port=1, model_dir=None,
                                  drafter_dir=None)  # fmt: skip
    assert nccl.env["NCCL_P2P_DISABLE"] == "1"


def test_the_best_that_loses_nowhere_is_kept() -> None:
    kept = judge(points(a=(1.2, 1.2), b=(1.6, 0.8), c=(1.1, 1.1)))
    assert kept.name == "a"
    assert (kept.wins, kept.loses) == (2, 0)


def test_nothing_is_kept_without_a_gain_beyond_doubt() -> None:
    kept = judge(points(a=(1.0, 1.0)))
    assert kept.name is None
    with pytest.raises(TuneError, match="nothing to write"):
        tuned_stack(CPU, "graphs", kept, "tuned")


def test_the_kept_alternative_is_written_into_the_stack() -> None:
    text = tuned_stack(CPU, "graphs", judge(points(compiled=(1.3, 1.2))), "tuned")
    stack = stack_from_text(text, "tuned.yaml")
    assert stack.engine.flags["enforce-eager"] is False
    assert stack.variants == CPU.variants
    assert text.startswith("# compiled: 1.25x")
    assert "\n# edit, 1 user: 1.30x (1." in text


@pytest.mark.parametrize(("axis", "told"), [("grafs", "did you mean 'graphs'"), ("nccl", "no alternative")])
def test_an_axis_without_alternatives_is_refused(axis: str, told: str) -> None:
    with pytest.raises(TuneError, match=told):
        tuning_stack(CPU, axis)


def test_the_plan_is_shown_without_starting_anything() -> None:
    result = CliRunner().invoke(app, ["tune", "smollm2-cpu", "--axis", "graphs", "--plan"])
    assert result.exit_code == 0
    assert "compiled" in result.output
