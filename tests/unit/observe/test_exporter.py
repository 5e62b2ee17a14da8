"""What the exporter publishes of recorded cells."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.unit.campaign.made import cell

from outrider.campaign.cell import Cell
from outrider.load.result import Finding
from outrider.observe import series as s
from outrider.observe.exporter import LABELS, CellsExporter, objectives
from outrider.observe.recorded import Place, read_cells, record
from outrider.runtime.canary import derived_floor
from outrider.stack import find_stack, stack_from_text
from outrider.stack.loader import stacks_dir

CPU = find_stack("smollm2-cpu")


def of_stack(one: Cell, digest: str = CPU.digest()) -> Cell:
    return one.model_copy(update={"provenance": one.provenance.model_copy(update={"stack_digest": digest})})


def write(directory: Path, *cells: Cell, tail: str = "") -> Path:
    directory.mkdir(exist_ok=True)
    file = directory / "cells.jsonl"
    file.write_text("".join(json.dumps(one.to_json()) + "\n" for one in cells) + tail)
    return directory


def samples(exporter: CellsExporter) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *(sample.labels[label] for label in LABELS[sample.name])): sample.value
        for family in text_string_to_metric_families(exporter.page.decode())
        for sample in family.samples
    }


def exporter(*runs: Path, **given: object) -> CellsExporter:
    made = CellsExporter(CPU, lambda: list(runs), **given)  # type: ignore[arg-type]
    assert made.refresh() == []
    return made


def test_baseline_is_the_mean_of_its_cells_by_workload_and_band(tmp_path: Path) -> None:
    run = write(
        tmp_path / "r",
        of_stack(cell(concurrency=4, tpot_s=0.030)),
        of_stack(cell(concurrency=4, repeat=1, tpot_s=0.034)),
        of_stack(cell(concurrency=3, tpot_s=0.026)),
        of_stack(cell(concurrency=1, tpot_s=0.020)),
        of_stack(cell("ngram", concurrency=4, tpot_s=0.016, al=2.5)),
    )
    found = samples(exporter(run))
    assert found[s.BASELINE_TPOT, "smollm2-cpu", "edit", "3-4"] == pytest.approx(0.030)
    assert found[s.BASELINE_TPOT, "smollm2-cpu", "edit", "1"] == pytest.approx(0.020)
    assert found[s.CELL_TPOT, "smollm2-cpu", "ngram", "edit", "3-4"] == pytest.approx(0.016)
    assert not [key for key in found if key[0] == s.CELL_TPOT and "baseline" in key]
    assert found[s.CELL_TOKENS_PER_STEP, "smollm2-cpu", "ngram", "edit", "3-4"] > 1


def test_cells_that_are_no_measurement_are_moments_only(tmp_path: Path) -> None:
    broken = Finding(code="gave_up", severity="invalid", evidence="x")
    run = write(
        tmp_path / "r",
        of_stack(cell(tpot_s=0.02).with_finding(broken)),
        of_stack(cell("ngram", error="the engine died")),
    )
    found = samples(exporter(run))
    assert not [key for key in found if key[0] in {s.BASELINE_TPOT, s.CELL_TPOT}]
    ended = {key[2]: key[5] for key in found if key[0] == s.CELL_ENDED}
    assert ended == {"baseline": "invalid", "ngram": "failed"}
    # Began at midnight, UTC, on 2026-01-01, and took 12 s.
    assert {value for key, value in found.items() if key[0] == s.CELL_ENDED} == {1767225600.0 + 12.0}


def test_cells_of_another_state_of_the_stack_are_left_out(tmp_path: Path) -> None:
    found = samples(exporter(write(tmp_path / "r", of_stack(cell(), "0" * 16))))
    assert not [key for key in found if key[0] in {s.BASELINE_TPOT, s.CELL_ENDED}]


def test_a_line_that_is_being_written_is_left_for_the_next_reading(tmp_path: Path) -> None:
    run = write(tmp_path / "r", of_stack(cell()), tail='{"schema": 1, "cell_i')
    assert len(read_cells(run / "cells.jsonl", CPU)) == 1
    assert (run / "cells.jsonl").read_text().endswith("cell_i"), "reading never writes"


def test_a_run_that_grows_is_read_again_and_one_that_does_not_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write(tmp_path / "r", of_stack(cell(tpot_s=0.02)))
    made = exporter(run)
    reads: list[Path] = []
    monkeypatch.setattr(
        "outrider.observe.exporter.read_cells", lambda file, stack: reads.append(file) or read_cells(file, stack)
    )
    made.refresh()
    assert reads == []
    write(tmp_path / "r", of_stack(cell(tpot_s=0.02)), of_stack(cell(concurrency=2, tpot_s=0.03)))
    made.refresh()
    assert len(reads) == 1
    assert (s.BASELINE_TPOT, "smollm2-cpu", "edit", "2") in samples(made)


def test_a_file_that_cannot_be_read_is_named_and_the_others_count(tmp_path: Path) -> None:
    bad = tmp_path / "bad"
    bad.mkdir()
    (bad / "cells.jsonl").write_text("{not json\n")
    good = write(tmp_path / "good", of_stack(cell()))
    made = CellsExporter(CPU, lambda: [bad, good])
    [fault] = made.refresh()
    assert "bad/cells.jsonl" in fault
    assert (s.BASELINE_TPOT, "smollm2-cpu", "edit", "1") in samples(made)


def test_without_any_run_floors_and_schedules_are_still_there() -> None:
    found = samples(exporter())
    assert found[s.ACCEPTANCE_FLOOR, "smollm2-cpu", "eagle3"] == derived_floor(CPU, "eagle3")
    assert found[s.SPECULATIVE_TOKENS, "smollm2-cpu", "ngram"] == 3
    assert found[s.SCHEDULE_TOKENS, "smollm2-cpu", "ngram", "17-32"] == 3
    assert not [key for key in found if key[0] == s.SCHEDULE_TOKENS and key[3] == "33-64"], "max_num_seqs is 32"


def test_a_schedule_is_published_by_band() -> None:
    text = (stacks_dir() / "smollm2-cpu.yaml").read_text()
    stack = stack_from_text(text.replace("      k: 3\n", "      k: 3\n      schedule: [[1, 4, 3], [5, 32, 0]]\n", 1))
    made = record(stack, ())
    bands = {band: k for (variant, band), k in made.schedule.items() if variant == "ngram"}
    assert bands == {"1": 3, "2": 3, "3-4": 3, "5-8": 0, "9-16": 0, "17-32": 0}


def test_the_objective_is_put_at_a_bound_of_each_variants_own_histogram() -> None:
    kimi = find_stack("kimi-k2.5-rtx6000x8")
    found = {variant: le for (_, variant, le) in objectives(kimi, 0.045)}
    assert (found["eagle3"], found["eagle3-sglang"]) == ("0.05", "0.06")
    assert objectives(kimi, None) == {}


def test_predictions_are_given_for_measured_places(tmp_path: Path) -> None:
    cells = [of_stack(cell(concurrency=n, tpot_s=0.02 + 0.002 * n)) for n in (1, 2, 4)]
    cells += [of_stack(cell("ngram", concurrency=n, tpot_s=0.014 + 0.002 * n, al=1.5)) for n in (1, 2, 4)]
    made = exporter(write(tmp_path / "r", *cells))
    predicted = {key[2:]: value for key, value in samples(made).items() if key[0] == s.PREDICTED_TPOT}
    assert {(variant, band) for variant, _, band in predicted} == {
        (variant, band) for variant in ("baseline", "ngram") for band in ("1", "2", "3-4")
    }
    assert all(0.005 < value < 0.1 for value in predicted.values())


def test_a_place_has_one_name() -> None:
    assert Place("a", "chat", "1") == Place("a", "chat", "1")
