"""How the GPUs talk to each other: measured all-reduces, peer access, and the engine's own all-reduce."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outrider.preflight.report import Finding, found

if TYPE_CHECKING:
    from collections.abc import Iterable

    from outrider.preflight.facts.node import NodeFacts
    from outrider.stack import Stack

# A quarter of what one x16 link carries each way, 1e9 bytes/s.
_SLOW_GB_S = {"pcie5": 14.0, "pcie4": 7.0, "nvlink": 60.0}
# Smaller transfers measure latency, not the link.
_LARGE = 32 << 20


def check_network(stack: Stack, node: NodeFacts) -> list[Finding]:
    """Findings about communication between GPUs; none for a single GPU."""
    ranks = stack.parallel.tensor * stack.parallel.pipeline
    if ranks == 1:
        return []
    env = {**stack.node.env, **stack.env}
    return [*_measured(stack, node, ranks), *_peers(node, env), *_own_all_reduce(stack, env)]


def _measured(stack: Stack, node: NodeFacts, ranks: int) -> Iterable[Finding]:
    if node.all_reduce is None:
        return
    hung = sorted({one.ranks for one in node.all_reduce if one.timed_out})
    if hung:
        yield found("NODE007", "node report, all_reduce", f"timed out at {hung} ranks")
    if not any(one.ranks == ranks for one in node.all_reduce):
        measured = sorted({one.ranks for one in node.all_reduce})
        yield found("NODE008", "node report, all_reduce", f"measured at {measured} ranks, the stack uses {ranks}")
    at_size = [
        one.bandwidth_gb_s
        for one in node.all_reduce
        if one.ranks == ranks and one.bandwidth_gb_s and (one.size_bytes or 0) >= _LARGE
    ]
    floor = _SLOW_GB_S.get(stack.node.interconnect)
    if at_size and floor and max(at_size) < floor:
        evidence = f"{max(at_size)} GB/s at {ranks} ranks over {stack.node.interconnect}, expected above {floor}"
        yield found("NODE020", "node report, all_reduce", evidence)


def _peers(node: NodeFacts, env: dict[str, str]) -> Iterable[Finding]:
    through_host = [f"iommu {node.iommu}"] if node.iommu in {"on", "pt"} else []
    if node.acs:
        through_host.append("acs on")
    if through_host:
        yield found("NODE009", "node report", ", ".join(through_host))
    if node.p2p is False and "NCCL_P2P_LEVEL" in env and env.get("NCCL_P2P_DISABLE") != "1":
        yield found("NODE010", "node report, p2p", f"false, NCCL_P2P_LEVEL={env['NCCL_P2P_LEVEL']}")


def _own_all_reduce(stack: Stack, env: dict[str, str]) -> Iterable[Finding]:
    tensor = stack.parallel.tensor
    pcie = stack.node.interconnect in {"pcie4", "pcie5"}
    where = f"stack {stack.name}, env"
    if env.get("VLLM_ALLREDUCE_USE_FLASHINFER_PCIE_IPC") == "1":
        eager = stack.engine.flags.get("enforce-eager", False)
        if tensor not in {2, 4, 8} or eager or stack.target.dtype == "float32":
            evidence = f"parallel.tensor {tensor}, enforce-eager {eager}, dtype {stack.target.dtype}"
            yield found("NODE019", where, evidence)
    elif pcie and tensor > 2:
        yield found("NODE018", where, f"parallel.tensor {tensor} over {stack.node.interconnect}")
