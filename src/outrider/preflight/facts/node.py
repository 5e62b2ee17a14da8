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
    pcie_generation_max: int | None = Field(None, gt=0)
    pcie_width: int | None = Field(None, gt=0)
    pcie_width_max: int | None = Field(None, gt=0)


class Driver(_Facts):
    """The NVIDIA driver."""

    version: str | None = Field(None, pattern=r"^\d+(\.\d+)*$")
    open_modules: bool | None = None
    userspace_version: str | None = Field(None, description="of the driver's libraries; differs after a half upgrade")
    persistence: bool | None = None
    error: str | None = Field(None, description="what nvidia-smi said when it failed")


class AllReduce(_Facts):
    """One timed all-reduce over some ranks."""

    ranks: int = Field(gt=1)
    size_bytes: int | None = Field(None, gt=0)
    latency_us: float | None = Field(None, gt=0)
    bandwidth_gb_s: float | None = Field(None, gt=0, description="bus bandwidth, 1e9 bytes/s")
    timed_out: bool = False
    error: str | None = None


class Container(_Facts):
    """How containers reach the GPUs."""

    runtime: Literal["cdi", "nvidia", "none"] | None = None
    canary_ok: bool | None = Field(None, description="a container with the production flags saw all GPUs")


class Disk(_Facts):
    """The disk that holds the weights."""

    read_gb_s: float | None = Field(None, gt=0, description="sequential read, 1e9 bytes/s")
    free_gb: float | None = Field(None, ge=0)


class PciGpu(_Facts):
    """A GPU as the bus shows it, before any driver."""

    address: str
    id: str | None = None
    driver: str | None = Field(None, description="kernel driver that has it")


class Package(_Facts):
    """An installed package."""

    name: str
    version: str = ""
    held: bool = False


class Kernel(_Facts):
    """The running kernel."""

    release: str | None = None
    cmdline: tuple[str, ...] = ()
    headers: bool | None = None


class Cpu(_Facts):
    """The CPUs."""

    vendor: str | None = None
    model: str | None = None
    sockets: int | None = None
    cores: int | None = None
    threads: int | None = None
    numa_nodes: int | None = None
    governor: str | None = None


class NodeFacts(_Facts):
    """A node as it was measured; see docs/preflight.md for a sample.

    Attributes:
        iommu: state of the kernel's IOMMU: `off`, `pt` (pass-through) or `on`.
        acs: True if access control services are on at a root or switch port.
        p2p: True if every pair of GPUs reports peer access.
        memlock_kib: limit of locked memory, -1 for unlimited.
        pci_gpus: what the bus shows, whatever the driver says.
        modules: loaded kernel modules of nvidia and nouveau.
        unmeasured: reason by name of each measurement that was left out.
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
    kernel: Kernel | None = None
    cpu: Cpu | None = None
    pci_gpus: tuple[PciGpu, ...] | None = None
    modules: tuple[str, ...] | None = None
    packages: tuple[Package, ...] | None = None
    unmeasured: dict[str, str] = Field(default_factory=dict)


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
