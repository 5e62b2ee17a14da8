"""What a stack asks of a node, as variables of the roles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from outrider.stack import Stack


def variables_of(stack: Stack) -> dict[str, Any]:
    """Variables that the roles' assertions read: GPUs, and room for target and drafters in GB (1e9 bytes)."""
    parallel = stack.parallel
    drafters = {
        spec.drafter.model: spec.drafter.weight_gb
        for variant in stack.variants.values()
        if (spec := variant.speculation) is not None and spec.drafter is not None
    }
    return {
        "outrider_gpu_node": stack.engine.build != "cpu",
        "outrider_weights_gb": round(stack.target.weight_gb + sum(drafters.values())),
        "preflight_gpus_min": parallel.tensor * parallel.pipeline * parallel.data,
    }
