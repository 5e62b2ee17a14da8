"""The ledger: every place where a pinned dependency does not do what Outrider needs, and what is done about it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from outrider.errors import OutriderError

LEDGER = "ledger.yaml"
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class PatchError(OutriderError):
    """A ledger that cannot be read, or a patched place that is not what the ledger knows."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Guard(_Strict):
    """A region of an upstream file by content: from the line that contains `start` to the one before `end`.

    Attributes:
        file: path below the directory that holds the package.
        start: text in the region's first line.
        end: text in the first line after it; absent means the end of the file.
        sha256: digest of the region as released.
        patched_sha256: digest after our patch; only for entries of kind `patch`.
    """

    file: str
    start: str
    end: str | None = None
    sha256: Sha256
    patched_sha256: Sha256 | None = None


class Entry(_Strict):
    """One change.

    Attributes:
        id: short name.
        package: import name of the package.
        versions: distribution to the releases that the guard was taken from.
        kind: `patch` edits a file, `substitute` replaces a class or function in our process, `plugin` uses an
            extension point of the package, `setting` avoids the fault by how we call it.
        upstream: where upstream knows of it, or the file and line if it does not.
        reason: what goes wrong without it.
        remedy: what we do, and where in Outrider.
        drop_when: when the entry can go.
        guards: the places upstream that the remedy relies on.
        patch: file beside the ledger, for kind `patch`.
        only_for: distributions that are patched; absent means all in `versions`.
    """

    id: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]*$")]
    package: str
    versions: dict[str, tuple[str, ...]] = Field(min_length=1)
    kind: Literal["patch", "substitute", "plugin", "setting"]
    upstream: str
    reason: str
    remedy: str
    drop_when: str
    guards: tuple[Guard, ...] = Field(min_length=1)
    patch: str | None = None
    only_for: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _patch_belongs_to_its_kind(self) -> Entry:
        if (self.kind == "patch") != (self.patch is not None):
            msg = "`patch` names a file exactly for entries of kind patch"
            raise ValueError(msg)
        if self.kind == "patch" and any(g.patched_sha256 is None for g in self.guards):
            msg = "guards of a patch need `patched_sha256`, so that a patched file is recognised"
            raise ValueError(msg)
        if unknown := set(self.only_for) - set(self.versions):
            msg = f"`only_for` names {', '.join(sorted(unknown))}, which `versions` does not have"
            raise ValueError(msg)
        return self

    def patches_distribution(self, distribution: str) -> bool:
        """Whether this distribution's files are edited."""
        return self.kind == "patch" and (not self.only_for or distribution in self.only_for)


class Ledger(_Strict):
    """All entries."""

    entries: tuple[Entry, ...]

    @model_validator(mode="after")
    def _ids_are_unique(self) -> Ledger:
        ids = [entry.id for entry in self.entries]
        if repeated := {i for i in ids if ids.count(i) > 1}:
            msg = f"written twice: {', '.join(sorted(repeated))}"
            raise ValueError(msg)
        return self


def default_directory() -> Path:
    """`patches/` of the checkout, else of the working directory."""
    checkout = Path(__file__).resolve().parents[3] / "patches"
    return checkout if checkout.is_dir() else Path("patches")


def load_ledger(directory: Path) -> Ledger:
    """Read `ledger.yaml`.

    Raises:
        PatchError: it is absent, no YAML, or an entry is not well-formed; names the entry and the field.
    """
    path = directory / LEDGER
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise PatchError(f"there is no patch ledger at {path}", evidence=str(error.strerror)) from error
    except yaml.YAMLError as error:
        raise PatchError("the patch ledger is not valid YAML", evidence=f"{path}: {error}") from error
    try:
        ledger = Ledger.model_validate({"entries": raw})
    except ValidationError as error:
        lines = [f"{'.'.join(map(str, e['loc'][1:]))}: {e['msg']}" for e in error.errors()]
        raise PatchError("the patch ledger is not well-formed", evidence=f"{path}: " + "; ".join(lines)) from None
    absent = [e.patch for e in ledger.entries if e.patch and not (directory / e.patch).is_file()]
    if absent:
        raise PatchError(f"patch files are missing: {', '.join(absent)}", evidence=str(directory))
    return ledger
