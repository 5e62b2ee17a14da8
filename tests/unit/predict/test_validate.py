"""The model's figures on public cells that it was not fitted to, and the commands."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from tests.unit.predict.made import FLAGSHIP, PUBLIC, SHAPE, STEP_COST, split
from typer.testing import CliRunner

from outrider.cli import app
from outrider.predict.fit import places_of
from outrider.predict.model import step_s
from outrider.predict.observations import read_observations
from outrider.predict.session import open_session
from outrider.predict.validate import Score, Validation, validate
from outrider.stack import find_stack

PAGE = Path(__file__).resolve().parents[3] / "docs" / "predicting.md"


def check(stack: str, file: Path, holdout: str) -> Validation:
    session, held = split(stack, file, holdout)
    return validate(session.fit, held, session.draft_bytes, acceptance=session.acceptance)


def test_scores_are_what_they_say() -> None:
    score = Score.of([1.2, 0.9, 1.1, 0.98], [1.0, 0.8, 0.9, 1.25])
    assert score.mape == pytest.approx((0.2 + 0.125 + 0.2222 + 0.216) / 4, abs=1e-3)
    assert score.choice_accuracy == 0.25
    assert score.choice_accuracy_beyond == pytest.approx(1 / 3)
    assert score.regret == pytest.approx((0 + 0 + 0.1 + 0.2) / 4)
    assert (score.n, score.n_beyond) == (4, 3)


def test_context_parallel_cells_are_predicted_from_others() -> None:
    found = check(FLAGSHIP, PUBLIC, "dcp==4")
    assert found.model.n == 30
    assert found.model.regret <= 0.015
    assert found.model.mape <= 0.10
    assert found.model.choice_accuracy_beyond is not None
    assert found.model.choice_accuracy_beyond >= 0.87
    for naive in (found.nearest_cell, found.constant_ratio):
        assert naive is not None
        assert found.model.mape < naive.mape
        assert found.model.regret < naive.regret
        assert found.model.choice_accuracy > naive.choice_accuracy


@pytest.mark.parametrize("holdout", ["ctx>=32768", "batch in (2, 8, 32, 128)", "ctx in (16384, 65536)", "batch>4"])
def test_other_splits_beat_the_naive_predictors_too(holdout: str) -> None:
    found = check(FLAGSHIP, PUBLIC, holdout)
    assert found.nearest_cell is not None
    assert found.constant_ratio is not None
    assert found.model.mape < min(found.nearest_cell.mape, found.constant_ratio.mape)
    assert found.model.regret < min(found.nearest_cell.regret, found.constant_ratio.regret)


@pytest.mark.parametrize(
    ("holdout", "row"),
    [
        ("dcp==4", "30 cells with dcp=4"),
        ("ctx>=32768", "24 longer ones"),
        ("batch in (2, 8, 32, 128)", "24 at 2, 8, 32, 128"),
        ("batch>4", "23 larger ones"),
        ("dcp==1", "22 cells without"),
    ],
)
def test_the_page_states_these_errors(holdout: str, row: str) -> None:
    line = next(text for text in PAGE.read_text(encoding="utf-8").splitlines() if row in text)
    found = check(FLAGSHIP, PUBLIC, holdout)
    scores = [found.model, found.nearest_cell, found.constant_ratio]
    errors, gains = ([100 * getattr(s, name) for s in scores if s] for name in ("mape", "regret"))
    beyond = 100 * (found.model.choice_accuracy_beyond or 0)
    stated = [float(number) for cell in line.split("|")[3:6] for number in re.findall(r"[0-9.]+", cell)]
    assert stated == pytest.approx([*errors, beyond, *gains], abs=0.6)


def test_intervals_cover_what_was_measured() -> None:
    splits = ("dcp==4", "ctx>=32768", "batch in (2, 8, 32, 128)", "ctx in (16384, 65536)")
    assert np.mean([check(FLAGSHIP, PUBLIC, one).coverage for one in splits]) >= 0.85


def test_acceptance_of_test_cells_is_not_used() -> None:
    session, held = split(FLAGSHIP, PUBLIC, "dcp==4", draws=4)
    before = validate(session.fit, held, session.draft_bytes)
    blind = [type(c)(**{f: getattr(c, f) for f in c.__slots__} | {"tokens_per_step": None}) for c in held]
    after = validate(session.fit, blind, session.draft_bytes)
    assert before.model == after.model


def test_step_costs_of_the_flagship_s_shape_are_predicted_within_fifteen_percent() -> None:
    session, held = split(SHAPE, STEP_COST, "k==3 and batch in (4, 64, 128)", draws=4)
    found = validate(session.fit, held, session.draft_bytes)
    assert found.model.n == 3
    for pair, one in zip(found.pairs, found.predictions, strict=True):
        assert one.step_s.mid == pytest.approx(pair.speculative.step_s, rel=0.15)


def test_priors_alone_give_plain_steps_within_twenty_percent() -> None:
    stack = find_stack(SHAPE)
    plain = [c for c in read_observations(STEP_COST, stack) if not c.k and not c.dynamic]
    session = open_session(stack, draws=0)
    steps = step_s(session.fit.machine, places_of(plain, session.draft_bytes), session.fit.factors)
    assert len(plain) == 5
    assert steps == pytest.approx([c.step_s for c in plain], rel=0.20)


def command(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["predict", *words])
    return result.exit_code, result.output if result.exception is None else result.output + str(result.exception)


def test_validate_prints_json_and_nothing_else() -> None:
    code, out = command("validate", "--stack", FLAGSHIP, "--cells", str(PUBLIC), "--holdout", "dcp==4", "--json", "-")
    assert code == 0
    data = json.loads(out)
    assert {"mape", "choice_accuracy", "regret", "n"} <= data.keys()
    assert data["naive"]["nearest_cell"].keys() == data["naive"]["constant_ratio"].keys()
    assert sum(region["n"] for region in data["regions"]) == data["n"] == len(data["cells"]) == 30


def test_another_file_can_be_the_test(tmp_path: Path) -> None:
    rows = PUBLIC.read_text(encoding="utf-8").splitlines()
    fitted, tested = tmp_path / "fit.csv", tmp_path / "test.csv"
    fitted.write_text("\n".join([rows[0], *[r for r in rows[1:] if r.startswith("1,")]]), encoding="utf-8")
    tested.write_text("\n".join([rows[0], *[r for r in rows[1:] if r.startswith("4,")]]), encoding="utf-8")
    out = tmp_path / "out.json"
    code, _ = command(
        "validate", "--stack", FLAGSHIP, "--cells", str(fitted), "--test", str(tested), "--json", str(out)
    )
    assert code == 0
    assert json.loads(out.read_text(encoding="utf-8"))["n"] == 30


def test_cells_of_another_stack_can_be_the_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """k=5 and 7 on one H200, predicted from k=0, 1, 3 of a run hours before; the stacks differ in their variants."""
    evidence = Path(__file__).parents[3] / "docs/evidence"
    fitted, tested = evidence / "h200-kimi-shape", evidence / "h200-kimi-shape-k5-k7"
    stack = "kimi-shape8-h200-stepcost.yaml"
    made = CliRunner().invoke(app, ["shape", FLAGSHIP, "--layers", "8", "--to", str(tmp_path), "--name", "s"])
    assert made.exit_code == 0, made.output
    monkeypatch.setenv("OUTRIDER_MODELS", str(tmp_path))
    words = ["--cells", str(fitted / "cells.jsonl"), "--test", str(tested / "cells.jsonl")]
    out = tmp_path / "out.json"
    code, text = command("validate", "--stack", str(fitted / stack), *words,
                         "--test-of", str(tested / stack), "--json", str(out))  # fmt: skip
    assert code == 0, text
    found = json.loads(out.read_text(encoding="utf-8"))
    assert found["n"] == 32
    assert found["mape"] < 0.10 < found["naive"]["constant_ratio"]["mape"]
    code, text = command("validate", "--stack", str(fitted / stack), *words)
    assert code != 0
    assert "another stack" in text


@pytest.mark.parametrize(
    ("words", "told"),
    [(["--holdout", "dcp==99"], "splits nothing"), (["--holdout", "dpc==4"], "did you mean"), ([], "one of")],
)
def test_a_split_that_splits_nothing_is_refused(words: list[str], told: str) -> None:
    code, out = command("validate", "--stack", FLAGSHIP, "--cells", str(PUBLIC), *words)
    assert code != 0
    assert told in " ".join(out.split())


def test_run_works_from_nothing_but_the_stack(tmp_path: Path) -> None:
    plot = tmp_path / "plot.html"
    place = ["--concurrency", "4", "--context", "1024"]
    code, out = command("run", FLAGSHIP, "--k", "1..3", "--variant", "eagle3", *place,
                        "--json", "-", "--plot", str(plot))  # fmt: skip
    assert code == 0
    data = json.loads(out)
    assert [p["k"] for p in data["predictions"]] == [0, 1, 2, 3]
    assert data["fit"]["source"] == "prior"
    assert all(p["speedup"]["low"] < p["speedup"]["mid"] < p["speedup"]["high"] for p in data["predictions"][1:])
    assert "Plotly" in plot.read_text(encoding="utf-8")


def test_places_that_do_not_fit_the_cache_are_left_out() -> None:
    code, out = command("run", FLAGSHIP, "--variant", "eagle3", "--concurrency", "128", "--context", "65536")
    assert code == 0
    assert "2 places are left out" in out


@pytest.mark.parametrize("k", ["0", "x", "7..3", "1..99"])
def test_a_k_that_is_none_is_refused(k: str) -> None:
    code, out = command("run", FLAGSHIP, "--k", k)
    assert code == 1
    assert "--k" in out
