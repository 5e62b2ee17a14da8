"""Reads prompt files that the user brings: JSON lines, a JSON array, or Parquet."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from outrider.errors import LoadError
from outrider.load.workloads.prompt import Prompt, Workload, assemble
from outrider.load.workloads.rows import FORMATS, Row, detect_format

if TYPE_CHECKING:
    from collections.abc import Iterator
    from os import PathLike

Located = tuple[str, Any]
"""A row and where it stands: `file:line`, or `file, item n` in an array, `file, row n` in a Parquet file."""


def load_prompts_file(
    path: str | PathLike[str],
    *,
    format: str = "auto",  # noqa: A002 - the word that the command line uses
    seed: int = 0,
    count: int | None = None,
) -> Workload:
    """Read a file of prompts into a workload named after it.

    Args:
        path: `.jsonl` (one object a line), `.json` (an array) or `.parquet`.
        format: `auto`, or a key of `rows.FORMATS`; `auto` judges by the fields of the first row.
        seed: decides the order.
        count: how many prompts after the shuffle; None for all.

    Raises:
        LoadError: the file cannot be read, is not UTF-8 or not JSON, a row does not fit the format
            (with file:line, field and what is expected), an id occurs twice, or nothing is left.
    """
    file = Path(path)
    rows = _located_rows(file)
    chosen = _format_of(format, rows, file)
    prompts: dict[str, Prompt] = {}
    left_out = 0
    for number, (where, raw) in enumerate(rows, start=1):
        prompt = _row(FORMATS[chosen], raw, where).as_prompt(f"{file.stem}/{number:06d}")
        if prompt is None:
            left_out += 1
            continue
        if prompt.id in prompts:
            raise LoadError(f"id {prompt.id!r} occurs twice", evidence=where, next_step="make every id unique")
        prompts[prompt.id] = prompt
    if not prompts:
        raise LoadError(
            "a file of prompts has none that can be sent",
            evidence=f"{file}: {left_out} rows, read as {chosen}",
            next_step=f"check the file, or name its format: {', '.join(FORMATS)}",
        )
    note = f"; {left_out} rows that do not begin with a user's turn are left out" if left_out else ""
    return assemble(
        file.stem,
        1,
        f"{len(prompts)} prompts from {file.name} ({chosen}){note}.",
        prompts.values(),
        seed=seed,
        count=count,
    )


def _format_of(asked: str, rows: list[Located], file: Path) -> str:
    if asked in FORMATS:
        return asked
    if asked != "auto":
        raise LoadError(f"there is no prompt format {asked!r}", next_step=f"use auto or one of {', '.join(FORMATS)}")
    if not rows:
        raise LoadError("a file of prompts is empty", evidence=str(file), next_step="put one JSON object on each line")
    where, first = rows[0]
    found = detect_format(first) if isinstance(first, dict) else None
    if found is None:
        seen = f"fields {', '.join(first)}" if isinstance(first, dict) else f"a {type(first).__name__}"
        raise LoadError(
            "the format of a prompt file is not recognised",
            evidence=f"{where}: {seen}",
            next_step=f"expected an object with `messages` or `prompt`, or a file of: {', '.join(FORMATS)}",
        )
    return found


def _row(model: type[Row], raw: object, where: str) -> Row:
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or "the row"
        message = first["msg"].removeprefix("Value error, ")
        raise LoadError(
            f"a prompt does not fit the format: {field}: {message}",
            evidence=f"{where}: {json.dumps(first['input'], ensure_ascii=False, default=str)[:120]}",
            next_step=f"expected fields: {', '.join(f.alias or name for name, f in model.model_fields.items())}",
        ) from error


def _located_rows(file: Path) -> list[Located]:
    try:
        content = file.read_bytes()
    except OSError as error:
        raise LoadError(f"a file of prompts cannot be read: {error.strerror}", evidence=str(file)) from error
    if content[:4] == b"PAR1":
        return _parquet_rows(file)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise LoadError(
            "a file of prompts is not UTF-8",
            evidence=f"{file}:{line}: {error.reason}",
            next_step="convert it to UTF-8",
        ) from error
    if text.lstrip()[:1] == "[":
        items = _parse(text, file, first_line=1)
        return [(f"{file}, item {n}", item) for n, item in enumerate(items, start=1)]
    return list(_json_lines(text, file))


def _json_lines(text: str, file: Path) -> Iterator[Located]:
    """Split at line feeds only: other separators that str.splitlines knows may stand inside a JSON string."""
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield f"{file}:{number}", _parse(line, file, first_line=number)


def _parse(text: str, file: Path, *, first_line: int) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise LoadError(
            f"a file of prompts is not JSON: {error.msg}",
            evidence=f"{file}:{first_line + error.lineno - 1}, column {error.colno}",
            next_step="put one JSON object on each line, or give one JSON array",
        ) from error


def _parquet_rows(file: Path) -> list[Located]:
    import polars as pl  # noqa: PLC0415 - slow to import, and most files are JSON

    try:
        frame = pl.read_parquet(file)
    except pl.exceptions.PolarsError as error:
        raise LoadError("a Parquet file cannot be read", evidence=f"{file}: {error}") from error
    return [(f"{file}, row {n}", row) for n, row in enumerate(frame.iter_rows(named=True), start=1)]
