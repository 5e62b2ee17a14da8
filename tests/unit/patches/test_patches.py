from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from outrider.patches.commands import patches_apply, patches_check
from outrider.patches.diff import apply_hunks, parse_diff
from outrider.patches.guard import region
from outrider.patches.ledger import PatchError, default_directory, load_ledger
from outrider.patches.state import Installed, State, apply, check, look_up, status_of

UPSTREAM = "import os\n\n\ndef fire(shots):\n    return shots + 1\n\n\ndef hold():\n    return None\n"
PATCH = """Why it is needed.

--- a/cannon/fire.py
+++ b/cannon/fire.py
@@ -3,4 +3,4 @@

 def fire(shots):
-    return shots + 1
+    return shots

"""


def _digest(text: str) -> str:
    return hashlib.sha256(region(text, "def fire(", "def hold(").encode()).hexdigest()


def _entry(**changes: Any) -> dict[str, Any]:
    return {
        "id": "cannon-off-by-one",
        "package": "cannon",
        "versions": {"cannon": ["1.0"]},
        "kind": "patch",
        "upstream": "example/cannon issue 1",
        "reason": "fires once too often",
        "remedy": "count right",
        "drop_when": "released",
        "patch": "cannon.patch",
        "guards": [
            {
                "file": "cannon/fire.py",
                "start": "def fire(",
                "end": "def hold(",
                "sha256": _digest(UPSTREAM),
                "patched_sha256": _digest(UPSTREAM.replace("shots + 1", "shots")),
            }
        ],
        **changes,
    }


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    directory = tmp_path / "patches"
    directory.mkdir()
    (directory / "cannon.patch").write_text(PATCH, encoding="utf-8")
    (directory / "ledger.yaml").write_text(yaml.safe_dump([_entry()]), encoding="utf-8")
    return directory


@pytest.fixture
def site(tmp_path: Path) -> Installed:
    (tmp_path / "site" / "cannon").mkdir(parents=True)
    (tmp_path / "site" / "cannon" / "fire.py").write_text(UPSTREAM, encoding="utf-8")
    return Installed(tmp_path / "site", {"cannon": "1.0"})


def _state(ledger: Path, site: Installed | None) -> State:
    return status_of(load_ledger(ledger).entries[0], site).state


def test_a_patch_is_applied_once_and_recognised_afterwards(ledger: Path, site: Installed) -> None:
    [entry] = load_ledger(ledger).entries
    assert _state(ledger, site) is State.TO_APPLY
    [changed] = apply(status_of(entry, site), ledger)
    assert "return shots\n" in changed.read_text(encoding="utf-8")
    assert _state(ledger, site) is State.APPLIED
    assert apply(status_of(entry, site), ledger) == []


def test_changes_outside_the_guarded_place_are_no_drift(ledger: Path, site: Installed) -> None:
    file = site.root / "cannon" / "fire.py"
    file.write_text(file.read_text(encoding="utf-8").replace("import os", "import os, sys"), encoding="utf-8")
    assert _state(ledger, site) is State.TO_APPLY


@pytest.mark.parametrize(
    "text", [UPSTREAM.replace("shots + 1", "shots + 2"), UPSTREAM.replace("def fire(", "def shoot("), "", None]
)
def test_a_changed_place_is_drift(ledger: Path, site: Installed, text: str | None) -> None:
    file = site.root / "cannon" / "fire.py"
    file.unlink()
    if text is not None:
        file.write_text(text, encoding="utf-8")
    assert _state(ledger, site) is State.DRIFTED


def test_drift_in_a_release_that_the_guard_does_not_know_is_named_so(ledger: Path, site: Installed) -> None:
    (site.root / "cannon" / "fire.py").write_text("", encoding="utf-8")
    assert _state(ledger, Installed(site.root, {"cannon": "2.0"})) is State.OTHER_VERSION


def test_a_package_that_is_not_there_is_no_fault(ledger: Path) -> None:
    assert _state(ledger, None) is State.ABSENT


def test_an_entry_without_an_edit_holds_while_upstream_is_as_known(tmp_path: Path, site: Installed) -> None:
    entry = _entry(kind="setting", patch=None)
    (tmp_path / "ledger.yaml").write_text(yaml.safe_dump([entry]), encoding="utf-8")
    assert _state(tmp_path, site) is State.HOLDS


def test_a_patch_for_another_distribution_is_only_watched_here(ledger: Path, site: Installed) -> None:
    entry = _entry(versions={"cannon": ["1.0"], "cannon-cuda": ["1.0"]}, only_for=["cannon-cuda"])
    (ledger / "ledger.yaml").write_text(yaml.safe_dump([entry]), encoding="utf-8")
    assert _state(ledger, site) is State.HOLDS
    assert _state(ledger, Installed(site.root, {"cannon-cuda": "1.0"})) is State.TO_APPLY


def test_a_patch_whose_result_is_not_the_promised_one_changes_nothing(ledger: Path, site: Installed) -> None:
    (ledger / "cannon.patch").write_text(PATCH.replace("+    return shots", "+    return 0"), encoding="utf-8")
    [entry] = load_ledger(ledger).entries
    with pytest.raises(PatchError, match="does not give what the ledger promises"):
        apply(status_of(entry, site), ledger)
    assert (site.root / "cannon" / "fire.py").read_text(encoding="utf-8") == UPSTREAM


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"patch": None}, "exactly for entries of kind patch"),
        ({"kind": "plugin"}, "exactly for entries of kind patch"),
        ({"only_for": ["other"]}, "only_for"),
        ({"colour": "red"}, "colour"),
        ({"guards": []}, "guards"),
    ],
)
def test_entries_that_make_no_sense_are_refused(ledger: Path, changes: dict[str, Any], said: str) -> None:
    (ledger / "ledger.yaml").write_text(yaml.safe_dump([_entry(**changes)]), encoding="utf-8")
    with pytest.raises(PatchError) as caught:
        load_ledger(ledger)
    assert said in str(caught.value)


def test_an_id_stands_once(ledger: Path) -> None:
    (ledger / "ledger.yaml").write_text(yaml.safe_dump([_entry(), _entry()]), encoding="utf-8")
    with pytest.raises(PatchError, match="not well-formed"):
        load_ledger(ledger)


def test_a_missing_patch_file_is_named(ledger: Path) -> None:
    (ledger / "cannon.patch").unlink()
    with pytest.raises(PatchError, match=r"cannon\.patch"):
        load_ledger(ledger)


def test_an_ambiguous_hunk_is_refused() -> None:
    [hunks] = parse_diff(PATCH).values()
    with pytest.raises(PatchError, match="fits 2 places"):
        apply_hunks(UPSTREAM + "\n" + UPSTREAM, hunks, "fire.py")


@pytest.mark.parametrize("text", ["", "just words", "--- a/x\n+++ b/x\n", "--- a/x\n+++ b/x\n@@ -1,3 +1,3 @@\n a\n"])
def test_what_is_no_whole_diff_is_refused(text: str) -> None:
    with pytest.raises(PatchError, match="not a whole unified diff"):
        parse_diff(text)


@given(before=st.lists(st.sampled_from("abc"), max_size=6), after=st.lists(st.sampled_from("abc"), max_size=6))
def test_lines_around_a_hunk_stay(before: list[str], after: list[str]) -> None:
    text = "\n".join([*before, "OLD", *after]) + "\n"
    [hunks] = parse_diff("--- a/f\n+++ b/f\n@@ -1,1 +1,2 @@\n-OLD\n+NEW\n+NEWER\n").values()
    assert apply_hunks(text, hunks, "f") == "\n".join([*before, "NEW", "NEWER", *after]) + "\n"


def _app() -> typer.Typer:
    app = typer.Typer()
    app.command("check")(patches_check)
    app.command("apply")(patches_apply)
    return app


def _python_with(tmp_path: Path, text: str) -> Path:
    """An interpreter that has `cannon` 1.0 as an installed distribution."""
    site = tmp_path / "installed"
    (site / "cannon").mkdir(parents=True)
    (site / "cannon" / "__init__.py").touch()
    (site / "cannon" / "fire.py").write_text(text, encoding="utf-8")
    info = site / "cannon-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: cannon\nVersion: 1.0\n", encoding="utf-8")
    (info / "RECORD").write_text("cannon/__init__.py,,\ncannon/fire.py,,\n", encoding="utf-8")
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={site} exec {sys.executable} "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    return python


def test_check_exits_3_before_and_0_after_apply(ledger: Path, tmp_path: Path) -> None:
    python = str(_python_with(tmp_path, UPSTREAM))
    options = ["--python", python, "--directory", str(ledger)]
    run = CliRunner().invoke
    assert run(_app(), ["check", *options]).exit_code == 3
    assert "cannon-off-by-one" in run(_app(), ["apply", *options]).output
    assert run(_app(), ["check", *options]).exit_code == 0


def test_drift_fails_the_build_and_apply_touches_nothing(ledger: Path, tmp_path: Path) -> None:
    python = str(_python_with(tmp_path, UPSTREAM.replace("shots + 1", "shots + 2")))
    options = ["--python", python, "--directory", str(ledger)]
    assert CliRunner().invoke(_app(), ["check", *options]).exit_code == 1
    outcome = CliRunner().invoke(_app(), ["apply", *options])
    assert isinstance(outcome.exception, PatchError)
    assert "nothing was applied" in str(outcome.exception)


def test_an_interpreter_that_cannot_be_asked_is_an_error(tmp_path: Path) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho no interpreter >&2; exit 1\n", encoding="utf-8")
    broken.chmod(0o755)
    with pytest.raises(PatchError, match="cannot ask"):
        look_up([str(broken)], ["cannon"])


def test_the_shipped_ledger_says_for_each_change_why_and_when_it_can_go() -> None:
    entries = load_ledger(default_directory()).entries
    assert {e.kind for e in entries} == {"patch", "plugin", "substitute", "setting"}
    for entry in entries:
        assert entry.reason
        assert entry.remedy
        assert entry.drop_when
        assert entry.upstream


def test_the_shipped_guards_hold_on_the_engine_that_is_installed_here() -> None:
    found = {s.entry.id: s for s in check(load_ledger(default_directory()), [sys.executable])}
    for name in ("vllm-mla-fp8-stages", "vllm-cpu-hidden-states"):
        assert found[name].state is State.HOLDS, found[name].evidence


def test_the_shipped_patch_gives_what_the_ledger_promises_on_the_installed_file() -> None:
    """The CPU build is not patched, but it carries the same file."""
    directory = default_directory()
    [entry] = [e for e in load_ledger(directory).entries if e.kind == "patch"]
    site = look_up([sys.executable], [entry.package])[entry.package]
    [guard] = entry.guards
    assert entry.patch is not None
    hunks = parse_diff((directory / entry.patch).read_text(encoding="utf-8"))[guard.file]
    text = apply_hunks((site.root / guard.file).read_text(encoding="utf-8"), hunks, guard.file)
    patched = region(text, guard.start, guard.end)
    assert hashlib.sha256(patched.encode()).hexdigest() == guard.patched_sha256
    assert "elif is_mla and k_buffer.element_size() == 1:\n" in patched
