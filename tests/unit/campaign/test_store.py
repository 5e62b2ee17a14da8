"""Results survive a crash at any moment: appended, whole, and never measured twice."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import polars as pl
import pytest
from tests.unit.campaign.made import cell, record

from outrider.campaign.cell import Cell
from outrider.campaign.store import RunStore
from outrider.errors import CampaignError


def test_a_line_is_flat_and_reads_back_equal(tmp_path: Path) -> None:
    made = cell("ngram", al=1.85)
    RunStore(tmp_path).append(made, [record(0)])
    flat = json.loads((tmp_path / "cells.jsonl").read_text())
    assert flat["tpot_s"]["mean"] == 0.02
    assert (flat["schema"], flat["stack"], flat["k"], flat["status"]) == (1, "smollm2-cpu", 3, "ok")
    assert "load" not in flat
    assert RunStore(tmp_path).cells() == [made]


def test_a_failed_cell_is_kept_with_its_reason_and_measured_again(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    store.append(cell("ngram", error="the engine died"), [])
    assert store.done() == set()
    store.append(cell("ngram", al=1.5), [record(0)])
    (kept,) = RunStore(tmp_path).cells()
    assert kept.status == "ok"
    assert store.done() == {kept.key}
    assert len((tmp_path / "cells.jsonl").read_text().splitlines()) == 2


def test_a_torn_last_line_is_dropped_and_the_rest_kept(tmp_path: Path) -> None:
    RunStore(tmp_path).append(cell(), [record(0)])
    whole = (tmp_path / "cells.jsonl").read_bytes()
    with (tmp_path / "cells.jsonl").open("ab") as file:
        file.write(whole[: len(whole) // 2])
    assert [c.cell_id for c in RunStore(tmp_path).cells()] == [cell().cell_id]
    assert (tmp_path / "cells.jsonl").read_bytes() == whole


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    RunStore(tmp_path).append(cell(), [])
    with (tmp_path / "cells.jsonl").open("a") as file:
        file.write("{not json}\n")
    with pytest.raises(CampaignError, match=r"cells\.jsonl:2"):
        RunStore(tmp_path).cells()


def test_a_line_of_another_schema_is_named(tmp_path: Path) -> None:
    flat = cell().to_json() | {"schema": 2}
    with pytest.raises(CampaignError, match="not a cell of schema 1"):
        Cell.from_json(flat, "f:1")


def test_requests_carry_their_cells_key_and_merge_into_one_file(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    store.append(cell(), [record(0), record(1, tpot_s=None, outcome="reset")])
    store.append(cell("ngram", concurrency=4), [record(0)])
    merged = pl.read_parquet(store.merge_requests())
    assert merged.height == 3
    assert merged.select("variant", "concurrency").unique().sort("variant").rows() == [
        ("baseline", 1),
        ("ngram", 4),
    ]
    assert merged.schema["tpot_s"] == pl.Float64


def test_requests_of_a_run_without_cells_are_empty_but_typed(tmp_path: Path) -> None:
    frame = RunStore(tmp_path).requests()
    assert frame.height == 0
    assert {"cell_id", "variant", "tpot_s", "outcome"} <= set(frame.columns)


def test_a_full_disk_leaves_no_torn_line(tmp_path: Path) -> None:
    """The kernel refuses the write in the middle of the line, as a full disk does."""
    store = RunStore(tmp_path)
    store.append(cell(), [record(0)])
    before = (tmp_path / "cells.jsonl").read_bytes()
    program = f"""
        import resource, signal, sys
        from pathlib import Path
        from outrider.campaign.store import RunStore
        from outrider.errors import CampaignError
        from tests.unit.campaign.made import cell
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, ({len(before) + 100}, {len(before) + 100}))
        try:
            RunStore(Path({str(tmp_path)!r})).append(cell("ngram", al=1.5), [])
        except CampaignError as error:
            print(error)
            sys.exit(7)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[3],
    )
    assert done.returncode == 7, done.stderr
    assert "the disk is full" in done.stdout
    assert "finished cells are kept" in done.stdout
    assert (tmp_path / "cells.jsonl").read_bytes() == before
