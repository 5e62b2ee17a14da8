"""The catalogue: every code is documented, used and tested; its pages are the generated ones."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from outrider.preflight.catalogue import GROUPS, KINDS
from outrider.preflight.docs import pages, write

ROOT = Path(__file__).parents[3]
SOURCE = ROOT / "src" / "outrider" / "preflight"


def test_codes_are_unique_and_well_formed() -> None:
    listed = [kind.code for group in GROUPS.values() for kind in group]
    assert len(listed) == len(set(listed))
    assert all(re.fullmatch(r"[A-Z]{3,6}\d{3}", code) for code in listed)


@pytest.mark.parametrize("code", KINDS)
def test_kind_says_why_and_what_to_do(code: str) -> None:
    kind = KINDS[code]
    assert len(kind.explanation) > 40
    assert kind.fix.endswith(".") or kind.code == "TARGET017"
    assert not kind.title.endswith(".")


def test_every_kind_is_given_somewhere_and_nothing_else_is() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py") if "catalogue" not in path.parts)
    assert set(re.findall(r'"([A-Z]{3,6}\d{3})"', text)) == set(KINDS)


def test_committed_pages_are_the_generated_ones() -> None:
    directory = ROOT / "docs" / "findings"
    committed = {path.name: path.read_text(encoding="utf-8") for path in directory.glob("*.md")}
    assert committed == pages(), "run: python -m outrider.preflight.docs"


def test_writing_removes_pages_of_codes_that_are_gone(tmp_path: Path) -> None:
    (tmp_path / "OLD001.md").write_text("old")
    write(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == set(pages())
