"""A run's results on disk: appended, never rewritten, and whole after a crash at any moment.

results/<run>/plan.json             what is to be measured
              cells.jsonl           one line a cell, the last line of a cell counts
              requests.parts/*      one Parquet file a cell, written before its line
              requests.parquet      all of them, made when the campaign ends
              logs/*.log            the engines' output
"""

from __future__ import annotations

import errno
import json
import os
from dataclasses import asdict, fields
from typing import TYPE_CHECKING

import polars as pl

from outrider.campaign.cell import MEASURED, Cell, CellKey
from outrider.campaign.compare import compare
from outrider.errors import CampaignError
from outrider.load.result import RequestRecord

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from outrider.campaign.compare import Point

ColumnType = pl.DataType | type[pl.DataType]
_TYPES: dict[str, ColumnType] = {"int": pl.Int64, "float": pl.Float64, "str": pl.String}
# RequestRecord's annotations (`int | None`, a Literal, ...) as column types, so that every part has the same.
_COLUMNS: dict[str, ColumnType] = {
    f.name: _TYPES.get(str(f.type).split(" ", maxsplit=1)[0], pl.String) for f in fields(RequestRecord)
}
_KEY_COLUMNS: dict[str, ColumnType] = {
    "cell_id": pl.String,
    "variant": pl.String,
    "workload": pl.String,
    "concurrency": pl.Int64,
    "repeat": pl.Int64,
}


class RunStore:
    """The results of one run.

    Args:
        directory: `results/<run>`; made if absent. A line torn by a crash is removed on opening.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.cells_file = directory / "cells.jsonl"
        self.requests_file = directory / "requests.parquet"
        self.logs = directory / "logs"
        self._parts = directory / "requests.parts"
        for folder in (directory, self.logs, self._parts):
            folder.mkdir(parents=True, exist_ok=True)
        self._drop_torn_line()

    def append(self, cell: Cell, records: Sequence[RequestRecord]) -> None:
        """Keep a cell: its requests first, then its line, so that a line always has its requests.

        Raises:
            CampaignError: the disk refused; the store is as it was before.
        """
        part = self._parts / f"{cell.cell_id}.parquet"
        try:
            if records:
                self._write_part(part, cell, records)
            self._append_line(json.dumps(cell.to_json(), separators=(",", ":")))
        except OSError as error:
            reason = "the disk is full" if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG} else str(error)
            raise CampaignError(
                f"cell {cell.cell_id} could not be kept: {reason}",
                evidence=f"{error.filename or self.cells_file}: {error.strerror}",
                next_step="make room and give the same command again: finished cells are kept",
            ) from error

    def cells(self) -> list[Cell]:
        """All cells in the order in which they were measured; of a repeated one only the last."""
        latest: dict[str, Cell] = {}
        for number, line in enumerate(self._lines(), start=1):
            where = f"{self.cells_file}:{number}"
            try:
                flat = json.loads(line)
            except ValueError as error:
                raise CampaignError(
                    "a line of cells is not JSON",
                    evidence=f"{where}: {error}",
                    next_step="remove that line: the cell is measured again",
                ) from error
            cell = Cell.from_json(flat, where)
            latest.pop(cell.cell_id, None)
            latest[cell.cell_id] = cell
        return list(latest.values())

    def done(self) -> set[CellKey]:
        """Keys that need no measuring: they have a result, be it a doubtful one."""
        return {cell.key for cell in self.cells() if cell.status in MEASURED}

    def requests(self) -> pl.DataFrame:
        """All requests of the cells that count, one row each, with the cell's key beside them."""
        parts = [self._parts / f"{cell.cell_id}.parquet" for cell in self.cells() if cell.status in MEASURED]
        frames = [pl.read_parquet(part) for part in parts if part.is_file()]
        return pl.concat(frames) if frames else pl.DataFrame(schema=_KEY_COLUMNS | _COLUMNS)

    def points(self) -> list[Point]:
        """What the cells say so far."""
        return compare(self.cells(), self.requests())

    def merge_requests(self) -> Path:
        """Write `requests.parquet` from the parts, atomically."""
        scratch = self.requests_file.with_suffix(".tmp")
        self.requests().write_parquet(scratch)
        scratch.replace(self.requests_file)
        return self.requests_file

    def _write_part(self, part: Path, cell: Cell, records: Sequence[RequestRecord]) -> None:
        key = {name: getattr(cell, name) for name in _KEY_COLUMNS}
        frame = pl.DataFrame([key | asdict(r) for r in records], schema=_KEY_COLUMNS | _COLUMNS)
        scratch = part.with_suffix(".tmp")
        try:
            frame.write_parquet(scratch)
            scratch.replace(part)
        finally:
            scratch.unlink(missing_ok=True)

    def _append_line(self, line: str) -> None:
        data = line.encode() + b"\n"
        descriptor = os.open(self.cells_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            before = os.fstat(descriptor).st_size
            try:
                while data:
                    data = data[os.write(descriptor, data) :]
                os.fsync(descriptor)
            except OSError:
                os.ftruncate(descriptor, before)
                raise
        finally:
            os.close(descriptor)

    def _lines(self) -> list[str]:
        return self.cells_file.read_text(encoding="utf-8").splitlines() if self.cells_file.is_file() else []

    def _drop_torn_line(self) -> None:
        if not self.cells_file.is_file():
            return
        data = self.cells_file.read_bytes()
        if data and not data.endswith(b"\n"):
            os.truncate(self.cells_file, data.rfind(b"\n") + 1)
