"""Step cost by k and batch without a trained drafter: the engine accepts what it is told to accept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from outrider.errors import CampaignError
from outrider.stack import Stack
from outrider.stack.schema import WITH_DRAFTER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Tokens a step per proposed token; any value does, because cost does not depend on it, but 1 + 0.47 k keeps requests
# alive for long enough at every k.
_ACCEPTED_SHARE = 0.47


def step_cost_stack(stack: Stack, ks: Sequence[int]) -> Stack:
    """The stack with one variant a k whose acceptance is synthetic, named `step-k<k>`.

    Args:
        stack: a GPU stack with at least one drafter.
        ks: speculative tokens, above 0.

    Raises:
        CampaignError: a CPU engine, no drafter, or no k.
    """
    if stack.engine.build == "cpu":
        raise CampaignError(
            "step cost cannot be measured on the CPU engine",
            evidence="its rejection sampler has no synthetic mode (vLLM 0.32.0; finding SPEC019)",
            next_step="use a stack of a GPU engine, or measure a trained drafter",
        )
    if not ks or min(ks) < 1:
        raise CampaignError("step cost needs at least one k above 0", evidence=f"k {list(ks)}")
    drafters = [v for v in stack.variants.values() if v.speculation and v.speculation.method in WITH_DRAFTER]
    if not drafters:
        raise CampaignError(
            f"stack {stack.name} has no variant with a drafter, and drafting is part of a step's cost",
            next_step="`outrider shape` writes a stack with a head of dummy weights",
        )
    base = drafters[0].model_dump(mode="json", exclude_defaults=True)
    variants: dict[str, Any] = {"baseline": stack.variants["baseline"].model_dump(mode="json", exclude_defaults=True)}
    for k in sorted(set(ks)):
        options = {
            "rejection_sample_method": "synthetic",
            "synthetic_acceptance_length": round(1 + _ACCEPTED_SHARE * k, 2),
        }
        spec = base["speculation"] | {"k": k, "options": options}
        for dynamic in ("schedule", "auto"):
            spec.pop(dynamic, None)
        flags = base.get("flags", {}) | _graphs(stack, base.get("flags", {}), k)
        variants[f"step-k{k}"] = base | {
            "description": f"k={k}, synthetic acceptance: cost only",
            "speculation": spec,
            "flags": flags,
        }
    data = stack.model_dump(mode="json", by_alias=True)
    data |= {
        "name": f"{stack.name}-stepcost"[:48].rstrip("-."),
        "allow_lossy": True,
        "variants": variants,
        "campaign": data["campaign"] | {"variants": list(variants)},
    }
    return Stack.model_validate(data)


def _graphs(stack: Stack, own: Mapping[str, Any], k: int) -> dict[str, Any]:
    """Capture sizes that hold every batch of a power of two at k + 1 tokens a request, up to the largest.

    vLLM's own ceiling is 512 tokens (`config/vllm.py`, 0.33.0): above it a verification step runs without a graph, and
    its cost would be that of launching kernels.
    """
    flags = {**stack.engine.flags, **own}
    config = dict(flags.get("compilation-config", {}))
    chosen = {"cudagraph_capture_sizes", "max_cudagraph_capture_size"} & set(config)
    if flags.get("enforce-eager") or config.get("cudagraph_mode") == "NONE" or chosen:
        return {}
    most = stack.memory.max_num_seqs or max(stack.campaign.concurrency)
    batches = {1 << n for n in range(most.bit_length()) if 1 << n <= most} | {most}
    return {"compilation-config": config | {"cudagraph_capture_sizes": sorted((k + 1) * n for n in batches)}}
