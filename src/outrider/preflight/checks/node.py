"""The node report against the stack. Whatever the report does not say is unknown, never a fault."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outrider.preflight.checks.node_host import check_host
from outrider.preflight.checks.node_network import check_network
from outrider.preflight.facts.node import NodeFacts
from outrider.preflight.facts.runner import compute_capability
from outrider.preflight.report import Finding, found

if TYPE_CHECKING:
    from collections.abc import Iterable

    from outrider.stack import Stack

# CUDA 13, which 0.3x builds of the engine are made for.
_OLDEST_DRIVER = 580
_BLACKWELL = 100
_PATIENCE_S = 1800
_MEASURED = {"gpus", "driver", "iommu", "acs", "p2p", "all_reduce", "container", "disk", "shm_gib", "memlock_kib"}
_GPU_ONLY = {"gpus", "driver", "iommu", "acs", "p2p", "all_reduce", "container"}


def check_node(stack: Stack, node: NodeFacts | None, *, mla: bool) -> list[Finding]:
    """All findings about the node, and about settings that the GPU generation rules out.

    Args:
        stack: the stack.
        node: what was measured, None without a node report.
        mla: the target has multi-head latent attention.
    """
    facts = node or NodeFacts()
    cuda = stack.engine.build == "cuda"
    wanted = _MEASURED if cuda else _MEASURED - _GPU_ONLY
    unknown = sorted(name for name in wanted if getattr(facts, name) is None)
    findings: list[Finding] = []
    if unknown:
        findings.append(found("NODE001", "node report", f"unknown: {', '.join(unknown)}"))
    if cuda:
        findings += [*_gpus(stack, facts), *_driver(stack, facts), *_containers(facts), *check_network(stack, facts)]
        findings += _known_bad(stack, mla=mla)
    return [*findings, *check_host(facts), *_limits(stack, facts), *_disk(stack, facts)]


def _gpus(stack: Stack, node: NodeFacts) -> Iterable[Finding]:
    if node.gpus is None:
        return
    parallel = stack.parallel
    need = parallel.tensor * parallel.pipeline * parallel.data
    if len(node.gpus) < need:
        yield found("NODE002", "node report, gpus", f"{len(node.gpus)} GPUs, the stack needs {need}")
    wanted_words = set(stack.node.accelerator.lower().split())
    other = sorted({gpu.name for gpu in node.gpus if gpu.name and not wanted_words <= set(gpu.name.lower().split())})
    if other:
        yield found("NODE023", "node report, gpus", f"{', '.join(other)}; node.accelerator {stack.node.accelerator}")
    sizes = [gpu.vram_gib for gpu in node.gpus if gpu.vram_gib is not None]
    # Drivers reserve a little; half a GiB is no fault.
    if sizes and stack.node.vram_gib and min(sizes) < stack.node.vram_gib - 0.5:
        yield found("NODE003", "node report, gpus", f"{min(sizes)} GiB, node.vram_gib {stack.node.vram_gib}")
    wanted = {"pcie5": 5, "pcie4": 4}.get(stack.node.interconnect)
    slow = [
        f"GPU {index}: generation {gpu.pcie_generation}, {gpu.pcie_width} lanes"
        for index, gpu in enumerate(node.gpus)
        if wanted and ((gpu.pcie_generation or wanted) < wanted or (gpu.pcie_width or 16) < 16)
    ]
    if slow:
        yield found("NODE021", "node report, gpus", f"{'; '.join(slow[:4])}; stack says {stack.node.interconnect}")


def _driver(stack: Stack, node: NodeFacts) -> Iterable[Finding]:
    driver = node.driver
    if node.secure_boot:
        yield found("NODE022", "node report, secure_boot", "true")
    if driver is None:
        return
    where = "node report, driver"
    if driver.version and int(driver.version.split(".")[0]) < _OLDEST_DRIVER:
        yield found("NODE004", where, f"{driver.version}, oldest {_OLDEST_DRIVER}")
    if driver.open_modules is False and _capability(stack, node) >= _BLACKWELL:
        yield found("NODE005", where, f"open_modules false, {stack.node.accelerator}")
    if driver.version and driver.userspace_version and driver.version != driver.userspace_version:
        yield found("NODE006", where, f"module {driver.version}, libraries {driver.userspace_version}")


def _capability(stack: Stack, node: NodeFacts) -> int:
    for gpu in node.gpus or ():
        if gpu.compute_capability:
            major, minor = gpu.compute_capability.split(".")
            return int(major) * 10 + int(minor)
    return compute_capability(stack.node.accelerator) or 0


def _containers(node: NodeFacts) -> Iterable[Finding]:
    if node.container is not None and (node.container.canary_ok is False or node.container.runtime == "none"):
        evidence = f"runtime {node.container.runtime}, canary_ok {node.container.canary_ok}"
        yield found("NODE011", "node report, container", evidence)


def _known_bad(stack: Stack, *, mla: bool) -> Iterable[Finding]:
    """Pairs that fail on a GPU generation whatever the node report says."""
    capability = compute_capability(stack.node.accelerator) or 0
    fp8 = stack.memory.kv_cache_dtype.startswith("fp8")
    backend = str(stack.engine.flags.get("attention-backend", "TRITON_MLA")).upper()
    old_enough = [int(part) for part in stack.engine.version.split(".")] <= [0, 33, 0]
    if fp8 and mla and backend == "TRITON_MLA" and capability in {120, 121} and old_enough:
        evidence = (
            f"kv_cache_dtype {stack.memory.kv_cache_dtype}, {stack.node.accelerator}, vllm {stack.engine.version}"
        )
        yield found("NODE017", f"stack {stack.name}, memory.kv_cache_dtype", evidence)


def _limits(stack: Stack, node: NodeFacts) -> Iterable[Finding]:
    ranks = stack.parallel.tensor * stack.parallel.pipeline
    if node.shm_gib is not None and ranks > 1 and node.shm_gib < ranks:
        yield found("NODE012", "node report, shm_gib", f"{node.shm_gib} GiB for {ranks} GPUs")
    low = []
    if stack.engine.build == "cuda" and node.memlock_kib is not None and node.memlock_kib != -1:
        low.append(f"memlock {node.memlock_kib} KiB")
    if node.open_files is not None and node.open_files < 65536:
        low.append(f"open files {node.open_files}")
    if low:
        yield found("NODE013", "node report", ", ".join(low))


def _disk(stack: Stack, node: NodeFacts) -> Iterable[Finding]:
    weights = stack.target.weight_gb
    drafters = [v.speculation.drafter.weight_gb for v in stack.variants.values()
                if v.speculation and v.speculation.drafter]  # fmt: skip
    measured = node.disk.read_gb_s if node.disk else None
    speed = measured or stack.node.disk_gb_s
    if node.disk is not None and node.disk.free_gb is not None and node.disk.free_gb < weights + sum(drafters):
        evidence = f"{node.disk.free_gb} GB free, weights {weights + sum(drafters):.0f} GB if none is there yet"
        yield found("NODE014", "node report, disk.free_gb", evidence)
    if speed:
        seconds = (weights + max(drafters, default=0.0)) / speed
        source = "measured" if measured else "as the stack states"
        evidence = f"{weights:.4g} GB at {speed} GB/s ({source}): {seconds / 60:.1f} min"
        where = "node report, disk.read_gb_s" if measured else f"stack {stack.name}, node.disk_gb_s"
        yield found("NODE016" if seconds > _PATIENCE_S else "NODE015", where, evidence)
