"""What a node report shows about a node itself, whatever stack will run there."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from outrider.preflight.report import Finding, found

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from outrider.preflight.facts.node import NodeFacts

SCHEMA = 1
# Packages of the driver itself, by the vendor's names for Debian and Ubuntu; what only carries tools may float.
_DRIVER_PACKAGES = re.compile(
    r"^(nvidia-(open|driver|kernel|dkms|utils|compute-utils|persistenced|modprobe)|libnvidia-|libcuda1|cuda-drivers)"
)


def check_host(node: NodeFacts) -> list[Finding]:
    """Findings about driver, kernel and measurements; none about facts that the report does not have."""
    return [*_measurements(node), *_bus(node), *_upkeep(node)]


def check_form(unknown: Collection[str], schema: object) -> list[Finding]:
    """Whether a node report is of the form that this version reads.

    Args:
        unknown: fields that it has and this version does not know.
        schema: what it says itself.
    """
    evidence = [f"schema {schema}, known {SCHEMA}"] if schema != SCHEMA else []
    evidence += [f"unknown fields: {', '.join(sorted(unknown))}"] if unknown else []
    return [found("NODE031", "node report", "; ".join(evidence))] if evidence else []


def _measurements(node: NodeFacts) -> Iterable[Finding]:
    for name, reason in sorted(node.unmeasured.items()):
        yield found("NODE030", f"node report, {name}", f"{name}: {reason}")
    for one in node.all_reduce or ():
        if one.error and not one.timed_out:
            yield found("NODE032", "node report, all_reduce", f"{one.ranks} ranks: {one.error}")


def _bus(node: NodeFacts) -> Iterable[Finding]:
    if node.driver is not None and node.driver.error:
        yield found("NODE024", "node report, driver.error", " ".join(node.driver.error.split()))
    if "nouveau" in (node.modules or ()):
        yield found("NODE026", "node report, modules", ", ".join(node.modules or ()))
    if node.gpus is not None and node.pci_gpus is not None and len(node.gpus) < len(node.pci_gpus):
        others = [f"{gpu.address} has {gpu.driver}" for gpu in node.pci_gpus if gpu.driver not in {None, "nvidia"}]
        evidence = f"{len(node.pci_gpus)} on the bus, {len(node.gpus)} in nvidia-smi"
        yield found("NODE025", "node report, pci_gpus", "; ".join([evidence, *others]))


def _upkeep(node: NodeFacts) -> Iterable[Finding]:
    if not node.pci_gpus and not node.gpus:
        return
    loose = [one.name for one in node.packages or () if _DRIVER_PACKAGES.match(one.name) and not one.held]
    if loose:
        more = f" and {len(loose) - 6} more" if len(loose) > 6 else ""
        yield found("NODE027", "node report, packages", ", ".join(loose[:6]) + more)
    if node.kernel is not None and node.kernel.headers is False:
        yield found("NODE028", "node report, kernel", f"{node.kernel.release}: no headers")
    if node.driver is not None and node.driver.persistence is False:
        yield found("NODE029", "node report, driver.persistence", "false")
    if node.cpu is not None and node.cpu.governor not in {None, "performance"}:
        yield found("NODE033", "node report, cpu.governor", str(node.cpu.governor))
