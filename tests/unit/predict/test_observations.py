from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.unit.campaign.made import cell
from tests.unit.predict.made import flagship

from outrider.predict.errors import PredictError
from outrider.predict.holdout import matches
from outrider.predict.observations import read_observations
from outrider.stack import find_stack

if TYPE_CHECKING:
    from pathlib import Path

HEADER = "dcp,ctx,concurrency,base_tok_s,eagle3_k3_tok_s,speedup,accept_rate,tokens_per_step\n"


def csv(tmp_path: Path, *rows: str, header: str = HEADER) -> Path:
    file = tmp_path / "cells.csv"
    file.write_text(header + "".join(f"{row}\n" for row in rows), encoding="utf-8")
    return file


def lines(tmp_path: Path, *rows: dict[str, object]) -> Path:
    file = tmp_path / "cells.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file


def test_a_csv_row_is_two_cells_at_one_place(tmp_path: Path) -> None:
    plain, fast = read_observations(csv(tmp_path, "4,16384,8,270.1,296.8,1.099,0.365,2.09"), flagship())
    assert plain.place == fast.place
    assert (plain.k, plain.rate, plain.context_ranks) == (0, pytest.approx(33.76, abs=0.01), 4)
    assert (fast.variant, fast.k, fast.tokens_per_step) == ("eagle3", 3, 2.09)
    assert fast.step_s == pytest.approx(2.09 / 296.8 * 8)


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ("1,0,1,92.4,122.0,1.90,0.494,2.48", "speedup contradicts"),
        ("1,0,1,92.4,122.0,1.32,0.494,1.48", "tokens_per_step contradicts"),
        ("1,0,1,92.4,122.0,1.32,49.4,149.2", "between 0 and 1"),
        ("1,0,1,fast,122.0,1.32,0.494,2.48", "no usable number"),
        ("1,0,1,-92.4,-122.0,1.32,0.494,2.48", "not positive"),
        ("1,0,0,92.4,122.0,1.32,0.494,2.48", "no usable number"),
    ],
)
def test_contradictions_and_nonsense_are_refused_with_their_line(tmp_path: Path, row: str, told: str) -> None:
    with pytest.raises(PredictError, match=told) as refused:
        read_observations(csv(tmp_path, row), flagship())
    assert "cells.csv:2" in str(refused.value)


def test_another_csv_is_refused_with_its_columns(tmp_path: Path) -> None:
    with pytest.raises(PredictError, match="columns: a, b"):
        read_observations(csv(tmp_path, "1,2", header="a,b\n"), flagship())


def test_a_schedule_says_which_k_was_in_force(tmp_path: Path) -> None:
    row = {"variant": "sched", "k": 3, "schedule": "[[1,16,3],[17,128,0]]", "tpot_ms": 2.0}
    low, high = read_observations(
        lines(
            tmp_path,
            row | {"batch": 4, "tokens_per_step": 2.5, "step_ms": 5.0},
            row | {"batch": 64, "tokens_per_step": 1.0, "step_ms": 2.0},
        ),
        flagship(),
    )
    assert (low.k, high.k) == (3, 0)
    assert low.dynamic
    assert high.dynamic


def test_step_times_in_other_units_are_refused(tmp_path: Path) -> None:
    row = {"variant": "a", "k": 3, "batch": 1, "tokens_per_step": 2.4, "tpot_ms": 2.5, "step_ms": 0.006}
    with pytest.raises(PredictError, match="milliseconds"):
        read_observations(lines(tmp_path, row), flagship())


def test_more_tokens_than_were_proposed_are_refused(tmp_path: Path) -> None:
    row = {"variant": "a", "k": 3, "batch": 1, "tokens_per_step": 4.4, "tpot_ms": 2.5, "step_ms": 11.0}
    with pytest.raises(PredictError, match="between 1 and k"):
        read_observations(lines(tmp_path, row), flagship())


def own(variant: str = "baseline", **changes: object) -> dict[str, object]:
    row = cell(variant, al=1.7 if variant == "ngram" else None).to_json()
    row["provenance"]["stack_digest"] = find_stack("smollm2-cpu").digest()
    return row | changes


def test_cells_of_a_run_are_read(tmp_path: Path) -> None:
    plain, fast = read_observations(lines(tmp_path, own(), own("ngram")), find_stack("smollm2-cpu"))
    assert plain.rate == pytest.approx(50)
    # 50 tokens of prompt, and half of the 40 that were written.
    assert plain.context == pytest.approx(70)
    assert fast.tokens_per_step is not None
    assert fast.positions == (0.5, 0.25, 0.1)


def test_the_share_of_steps_that_draft_comes_from_the_counters(tmp_path: Path) -> None:
    # 100 drafts gained 20 tokens; 156 decoded tokens took 136 steps.
    row = own("ngram", al=1.2, tokens_per_step=156 / 136)
    row["engine"] = {"drafts": 100.0, "generation_tokens": 160.0, "first_tokens": 4.0}
    uncounted = own("ngram", engine=None)
    half, whole, plain = read_observations(lines(tmp_path, row, uncounted, own()), find_stack("smollm2-cpu"))
    assert half.drafted == pytest.approx(100 / 136)
    assert whole.drafted == plain.drafted == 1.0


def test_cells_of_another_stack_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PredictError, match="another stack"):
        read_observations(lines(tmp_path, cell().to_json()), find_stack("smollm2-cpu"))


def test_acceptance_that_rises_with_position_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PredictError, match="rise"):
        read_observations(lines(tmp_path, own("ngram", accepted_per_pos=[0.2, 0.5, 0.1])), find_stack("smollm2-cpu"))


def test_failed_cells_only_are_no_cells(tmp_path: Path) -> None:
    with pytest.raises(PredictError, match="1 failed or invalid"):
        read_observations(lines(tmp_path, own(status="failed", tpot_s=None)), find_stack("smollm2-cpu"))


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(PredictError, match="cannot be read"):
        read_observations(tmp_path / "none.csv", flagship())


COLUMNS = {"dcp": 4, "ctx": 16384.0, "k": 3, "batch": 64, "variant": "eagle3"}


@pytest.mark.parametrize(
    ("expression", "held"),
    [
        ("dcp==4", True),
        ("k==3 and batch in (4, 64)", True),
        ("not ctx > 8192", False),
        ("1 < batch <= 64", True),
        ("variant != 'eagle3' or dcp not in [1, 2]", True),
    ],
)
def test_hold_out_conditions(expression: str, held: bool) -> None:
    assert matches(expression, COLUMNS) is held


@pytest.mark.parametrize("expression", ["dpc==4", "__import__('os')", "dcp=4", "dcp.real == 4", "ctx < 'a'", ""])
def test_what_is_no_condition_is_refused(expression: str) -> None:
    with pytest.raises(PredictError):
        matches(expression, COLUMNS)
