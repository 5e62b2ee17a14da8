"""The part of a node report that preflight reads. Everything is optional: what is absent is unknown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from outrider.errors import OutriderError

if TYPE_CHECKING:
    from pathlib import Path


class _Facts(BaseModel):
    # A node report holds far more than preflight needs.
    model_config = ConfigDict(extra="ignore", frozen=True)


class Gpu(_Facts):
    """One GPU."""

    name: str | None = None
    vram_gib: float | None = Field(None, gt=0)
    compute_capability: str | None = Field(None, pattern=r"^\d+\.\d+$", description='for example "12.0"')
    pcie_generation: int | None = Field(None, gt=0)
    pcie_width: int | None = Field(None, gt=0)


class Driver(_Facts):
    """The NVIDIA driver."""

    version: str | None = Field(None, pattern=r"^\d+(\.\d+)*$")
    open_modules: bool | None = None
    userspace_version: str | None = Field(None, description="of the driver's libraries; differs after a half upgrade")


class AllReduce(_Facts):
    """One timed all-reduce over some ranks."""

    ranks: int = Field(gt=1)
    size_bytes: int | None = Field(None, gt=0)
    latency_us: float | None = Field(None, gt=0)
    bandwidth_gb_s: float | None = Field(None, gt=0, description="bus bandwidth, 1e9 bytes/s")
    timed_out: bool = False


class Container(_Facts):
    """How containers reach the GPUs."""

    runtime: Literal["cdi", "nvidia", "none"] | None = None
    canary_ok: bool | None = Field(None, description="a container with the production flags saw all GPUs")


class Disk(_Facts):
    """The disk that holds the weights."""

    read_gb_s: float | None = Field(None, gt=0, description="sequential read, 1e9 bytes/s")
    free_gb: float | None = Field(None, ge=0)


class NodeFacts(_Facts):
    """A node as it was measured; see docs/preflight.md for a sample.

    Attributes:
        iommu: state of the kernel's IOMMU: `off`, `pt` (pass-through) or `on`.
        acs: True if access control services are on at a root or switch port.
        p2p: True if every pair of GPUs reports peer access.
        memlock_kib: limit of locked memory, -1 for unlimited.
    """

    gpus: tuple[Gpu, ...] | None = None
    driver: Driver | None = None
    secure_boot: bool | None = None
    iommu: Literal["off", "pt", "on"] | None = None
    acs: bool | None = None
    p2p: bool | None = None
    all_reduce: tuple[AllReduce, ...] | None = None
    container: Container | None = None
    disk: Disk | None = None
    shm_gib: float | None = Field(None, ge=0)
    memlock_kib: int | None = None
    open_files: int | None = Field(None, gt=0)
    memory_gib: float | None = Field(None, gt=0)


def read_node_facts(path: Path) -> NodeFacts:
    """Read a node report.

    Raises:
        OutriderError: the file cannot be read, is no JSON, or a field has a wrong type.
    """
    try:
        return NodeFacts.model_validate_json(path.read_bytes())
    except OSError as error:
        raise OutriderError(f"cannot read the node report {path}: {error.strerror}") from error
    except ValidationError as error:
        mistakes = [f"{'.'.join(map(str, item['loc'])) or 'the report'}: {item['msg']}" for item in error.errors()]
        raise OutriderError(
            f"{path} is no node report",
            evidence="; ".join(mistakes[:5]),
            next_step="write it with `outrider provision` (docs/preflight.md shows the fields that are read)",
        ) from error
