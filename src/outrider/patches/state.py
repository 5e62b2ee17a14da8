"""Compares the ledger with what is installed, and applies what is not applied yet."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from outrider.patches.diff import apply_hunks, parse_diff
from outrider.patches.guard import digest
from outrider.patches.ledger import PatchError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from outrider.patches.ledger import Entry, Ledger

# Asked of another interpreter: where the packages lie and which distributions carry them. Nothing is imported.
_QUESTION = """
import importlib.metadata as m, importlib.util as u, json, sys
out = {}
for package in sys.argv[1:]:
    spec = u.find_spec(package)
    if spec and spec.submodule_search_locations:
        names = m.packages_distributions().get(package, [])
        out[package] = [list(spec.submodule_search_locations)[0], {n: m.version(n) for n in names}]
print(json.dumps(out))
"""


class State(StrEnum):
    """Where an entry stands in one interpreter."""

    HOLDS = "holds"  # upstream is as known; the remedy needs no edit
    APPLIED = "applied"
    TO_APPLY = "to apply"
    DRIFTED = "drifted"  # the place changed: look again
    OTHER_VERSION = "other version"  # installed, but not a release that the guard knows
    ABSENT = "not installed"


@dataclass(frozen=True, slots=True)
class Installed:
    """A package in some interpreter.

    Attributes:
        root: directory that holds the package's directory.
        distributions: distribution to version.
    """

    root: Path
    distributions: dict[str, str]


@dataclass(frozen=True, slots=True)
class Status:
    """One entry's state.

    Attributes:
        entry: the entry.
        state: where it stands.
        evidence: file, version or digest that shows it.
        root: where the package lies; None if not installed.
    """

    entry: Entry
    state: State
    evidence: str
    root: Path | None = None


def look_up(pythons: Iterable[str], packages: Sequence[str]) -> dict[str, Installed]:
    """Packages to where they are installed; the first interpreter that has one counts.

    Raises:
        PatchError: an interpreter cannot be asked.
    """
    found: dict[str, Installed] = {}
    for python in dict.fromkeys(pythons):
        done = subprocess.run(
            [python, "-c", _QUESTION, *packages], capture_output=True, text=True, check=False, timeout=120
        )
        try:
            answer = json.loads(done.stdout)
        except ValueError as error:
            raise PatchError(
                f"cannot ask {python} which packages it has", evidence=done.stderr.strip()[-500:]
            ) from error
        for package, (directory, distributions) in answer.items():
            found.setdefault(package, Installed(Path(directory).parent, distributions))
    return found


def status_of(entry: Entry, installed: Installed | None) -> Status:
    """Where an entry stands; reads the guarded files and nothing else."""
    if installed is None:
        return Status(entry, State.ABSENT, f"no package {entry.package}")
    matching = {d: v for d, v in installed.distributions.items() if v in entry.versions.get(d, ())}
    states = []
    for guard in entry.guards:
        path = installed.root / guard.file
        try:
            found = digest(path.read_text(encoding="utf-8"), guard)
        except OSError:
            states.append((State.DRIFTED, f"{guard.file} is gone"))
            continue
        except PatchError as error:
            states.append((State.DRIFTED, f"{guard.file}: {error.cause}"))
            continue
        if found == guard.sha256:
            states.append((State.TO_APPLY, f"{guard.file} as released"))
        elif found == guard.patched_sha256:
            states.append((State.APPLIED, f"{guard.file} patched"))
        else:
            states.append((State.DRIFTED, f"{guard.file}: {found[:12]} instead of {guard.sha256[:12]}"))
    state, evidence = max(states, key=lambda s: (s[0] is State.DRIFTED, s[0] is State.TO_APPLY))
    versions = ", ".join(f"{d} {v}" for d, v in installed.distributions.items())
    if state is State.DRIFTED and not matching:
        return Status(entry, State.OTHER_VERSION, f"{versions}; {evidence}", installed.root)
    edits = any(entry.patches_distribution(d) for d in installed.distributions)
    if state is State.TO_APPLY and not edits:
        state = State.HOLDS
    return Status(entry, state, f"{versions}; {evidence}", installed.root)


def check(ledger: Ledger, pythons: Iterable[str]) -> list[Status]:
    """State of every entry."""
    installed = look_up(pythons, sorted({entry.package for entry in ledger.entries}))
    return [status_of(entry, installed.get(entry.package)) for entry in ledger.entries]


def apply(status: Status, directory: Path) -> list[Path]:
    """Apply one entry's patch; gives the changed files. All files change, or none does.

    Raises:
        PatchError: a hunk does not fit, or the result is not what the ledger promises.
    """
    entry = status.entry
    if status.state is not State.TO_APPLY or status.root is None or entry.patch is None:
        return []
    files = parse_diff((directory / entry.patch).read_text(encoding="utf-8"))
    changed: dict[Path, str] = {}
    for name, hunks in files.items():
        path = status.root / name
        changed[path] = apply_hunks(path.read_text(encoding="utf-8"), hunks, name)
    for guard in entry.guards:
        text = changed.get(status.root / guard.file)
        if text is None or digest(text, guard) != guard.patched_sha256:
            raise PatchError(
                f"patch {entry.id} does not give what the ledger promises",
                evidence=f"{guard.file}: digest after the patch differs from patched_sha256",
                next_step="renew patched_sha256 in patches/ledger.yaml together with the patch",
            )
    for path, text in changed.items():
        partial = path.with_name(path.name + ".patched")
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    return list(changed)
