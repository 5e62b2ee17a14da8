"""One measured point, and the line that stands for it in `cells.jsonl`."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from outrider.errors import CampaignError
from outrider.load import LoadResult
from outrider.load.result import Finding

CellStatus = Literal["ok", "flagged", "invalid", "failed"]
MEASURED: frozenset[str] = frozenset({"ok", "flagged", "invalid"})


class CellKey(BaseModel):
    """What is measured: one variant under one workload at one concurrency, for the n-th time."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    variant: str
    workload: str
    concurrency: int = Field(ge=1)
    repeat: int = Field(0, ge=0)

    @property
    def id(self) -> str:
        """Name that is unique within a run and safe in paths."""
        return f"{self.workload}.c{self.concurrency}.r{self.repeat}.{self.variant}"


class Provenance(BaseModel):
    """Everything needed to tell whether two cells may be compared, and to measure a cell again.

    Attributes:
        outrider: version, and the commit if it runs from a checkout.
        stack_digest: hash of the stack that was served.
        engine: adapter, pinned version, and what the engine said that it chose (`StartupFacts`).
        argv: the engine's command.
        env: variables that were set for it.
        image_digest: of the container image; None outside containers.
        drafter, drafter_revision: what proposed tokens; None without speculation.
        seed: prompt order; version and digest of the prompt set are in the load test's own fields.
        host: machine, kernel, CPU, cores, memory.
        gpus, driver: as the vendor's tool reports them; empty without one.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    outrider: dict[str, str | None]
    stack_digest: str
    engine: dict[str, Any]
    argv: tuple[str, ...]
    env: dict[str, str]
    image_digest: str | None = None
    drafter: str | None = None
    drafter_revision: str | None = None
    seed: int
    host: dict[str, Any]
    gpus: tuple[str, ...] = ()
    driver: str | None = None


class Cell(BaseModel):
    """A measured point with what was asked, what came out, and under which circumstances.

    In `cells.jsonl` the fields of `load` stand beside the others, not below them (`to_line`).

    Attributes:
        cell_id: `CellKey.id`.
        run, stack: names.
        k: number of speculative tokens, 0 for baseline.
        context_tokens: mean prompt tokens of the measured requests.
        rate: requests per second of an open loop; None in a closed one.
        started_at: ISO time, UTC.
        wall_s: seconds that the cell took, warm-up included.
        tokens_per_step, al, accepted_per_pos: from the engine's counters over the window.
        status: the load test's, or `failed` if there is no result.
        error: why it failed.
        validity: findings of the load test.
        load: None if it failed.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    schema_: Literal[1] = Field(1, alias="schema")
    cell_id: str
    run: str
    stack: str
    variant: str
    k: int
    workload: str
    context_tokens: int | None = None
    concurrency: int
    rate: float | None = None
    repeat: int
    started_at: str
    wall_s: float
    tokens_per_step: float | None = None
    al: float | None = None
    accepted_per_pos: tuple[float, ...] = ()
    status: CellStatus
    error: str | None = None
    validity: tuple[Finding, ...] = ()
    provenance: Provenance
    load: LoadResult | None = None

    @property
    def key(self) -> CellKey:
        """What was measured."""
        return CellKey(variant=self.variant, workload=self.workload, concurrency=self.concurrency, repeat=self.repeat)

    def with_finding(self, finding: Finding) -> Self:
        """The same cell with one more reason for doubt."""
        worse = "flagged" if self.status == "ok" and finding.severity == "flagged" else self.status
        status = "invalid" if finding.severity == "invalid" else worse
        return self.model_copy(update={"validity": (*self.validity, finding), "status": status})

    def to_json(self) -> dict[str, Any]:
        """The flat form: the load test's fields, then the cell's own."""
        flat = self.load.model_dump(mode="json") if self.load else {}
        return flat | self.model_dump(mode="json", by_alias=True, exclude={"load"})

    @classmethod
    def from_json(cls, flat: dict[str, Any], where: str) -> Self:
        """Read the flat form.

        Args:
            flat: one line of `cells.jsonl`.
            where: `file:line`, for errors.

        Raises:
            CampaignError: it is no cell of this schema.
        """
        own = {field.alias or name for name, field in cls.model_fields.items()} - {"load"}
        rest = {name: value for name, value in flat.items() if name in LoadResult.model_fields}
        try:
            load = None
            if flat.get("status") != "failed":
                load = LoadResult.model_validate(rest)
            return cls.model_validate({n: v for n, v in flat.items() if n in own} | {"load": load})
        except ValidationError as error:
            first = error.errors()[0]
            raise CampaignError(
                "a line of cells is not a cell of schema 1",
                evidence=f"{where}: {'.'.join(map(str, first['loc']))}: {first['msg']}",
                next_step="use the Outrider version that wrote the run, or measure it anew",
            ) from error
