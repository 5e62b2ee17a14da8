"""A node report as the role of that name writes it: everything that preflight reads, and what a reader wants to see.

A value that the node could not tell is None, which means unknown, never "no".
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from outrider.preflight.checks.node import check_node
from outrider.preflight.checks.node_host import check_form, check_host
from outrider.preflight.facts.node import Container, Disk, Driver, Gpu, NodeFacts
from outrider.preflight.facts.shape import ShapeError, shape_of
from outrider.preflight.report import Finding, in_order
from outrider.preflight.shapes import reference
from outrider.provision.errors import ProvisionError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from outrider.stack import Stack


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class System(_Part):
    """The operating system."""

    id: str | None = None
    version: str | None = None
    pretty_name: str | None = None


class HugePages(_Part):
    """Huge pages: reserved ones, and how transparent ones are given."""

    size_kib: int | None = None
    total: int | None = None
    transparent: str | None = None


class MountedDisk(_Part):
    """A mounted filesystem; 1e9 bytes."""

    mount: str
    device: str | None = None
    filesystem: str | None = None
    size_gb: float | None = None
    free_gb: float | None = None


class GpuDetail(Gpu):
    """A GPU with its place on the bus."""

    index: int | None = None
    uuid: str | None = None
    pci_address: str | None = None
    numa_node: int | None = None


class DriverDetail(Driver):
    """The driver, its module on disk and in the kernel."""

    module_version: str | None = None
    loaded_version: str | None = None


class ContainerDetail(Container):
    """The container engine, and what CDI offers."""

    engine_version: str | None = None
    cdi_devices: tuple[str, ...] = ()


class DiskDetail(Disk):
    """The disk that holds the weights."""

    path: str | None = None
    size_gb: float | None = None


class NodeReport(NodeFacts):
    """All of a node report.

    Attributes:
        schema_: form of the report.
        taken_at: UTC, ISO 8601.
        topology: words of `nvidia-smi topo -m`, a row a GPU.
        p2p_matrix: words of `nvidia-smi topo -p2p r`.
        all_reduce_env: what NCCL was told during the measurements.
    """

    schema_: int | None = Field(None, alias="schema")
    taken_at: str | None = None
    hostname: str | None = None
    boot_id: str | None = None
    os: System | None = None
    hugepages: HugePages | None = None
    secure_boot_key_enrolled: bool | None = None
    acs_ports: tuple[str, ...] = ()
    nvswitches: int | None = None
    gpus: tuple[GpuDetail, ...] | None = None
    driver: DriverDetail | None = None
    topology: tuple[tuple[str, ...], ...] = ()
    p2p_matrix: tuple[tuple[str, ...], ...] = ()
    container: ContainerDetail | None = None
    disk: DiskDetail | None = None
    disks: tuple[MountedDisk, ...] = ()
    all_reduce_env: dict[str, str] = Field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Examined:
    """A node with what deviates on it.

    Attributes:
        name: in the inventory.
        report: what was measured.
        findings: errors first.
    """

    name: str
    report: NodeReport
    findings: tuple[Finding, ...]

    def count(self, severity: str) -> int:
        """Findings of a severity."""
        return sum(1 for finding in self.findings if finding.severity == severity)


def examine(file: Path, stack: Stack | None) -> Examined:
    """Read a node report and compare it with a stack's expectations, or only with itself without a stack.

    Raises:
        ProvisionError: the file cannot be read, is no JSON object, or a field has a wrong type.
    """
    report, unknown = read_node_report(file)
    findings = [*check_form(unknown, report.schema_), *_deviations(report, stack)]
    return Examined(file.stem, report, in_order(findings))


def read_node_report(file: Path) -> tuple[NodeReport, tuple[str, ...]]:
    """A node report, and the names of its fields that this version does not know.

    Raises:
        ProvisionError: the file cannot be read, is no JSON object, or a field has a wrong type.
    """
    try:
        content: dict[str, Any] = json.loads(file.read_bytes())
        report = NodeReport.model_validate(content)
    except OSError as error:
        raise ProvisionError(f"cannot read the node report {file}: {error.strerror}") from error
    except ValidationError as error:
        mistakes = [f"{'.'.join(map(str, one['loc'])) or 'the report'}: {one['msg']}" for one in error.errors()]
        raise ProvisionError(f"{file} is no node report", evidence="; ".join(mistakes[:5])) from error
    except ValueError as error:
        raise ProvisionError(f"{file} is no JSON", evidence=str(error)) from error
    known = {field.alias or name for name, field in NodeReport.model_fields.items()}
    return report, tuple(sorted(content.keys() - known))


def exit_code(nodes: Sequence[Examined]) -> int:
    """0 fine, 1 a node has errors, 3 advisories only."""
    if any(node.count("error") for node in nodes):
        return 1
    return 3 if any(node.count("advisory") for node in nodes) else 0


def _deviations(report: NodeReport, stack: Stack | None) -> list[Finding]:
    if stack is None:
        return check_host(report)
    shipped = reference(stack.target.model)
    try:
        mla = bool(shipped and shipped.config and shape_of(shipped.config).mla)
    except ShapeError:
        mla = False
    return check_node(stack, report, mla=mla)
