"""Which model runner and GPU generation a variant will meet, before anything starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from outrider.preflight.facts.drafter import Runner
    from outrider.stack import Stack

# Compute capability x 10 of GPUs that stacks name; longest name first, so that "H200" wins over nothing.
_CAPABILITY = {
    "rtx pro 6000 blackwell": 120,
    "rtx pro": 120,
    "rtx 50": 120,
    "gb10": 121,
    "b300": 103,
    "gb300": 103,
    "b200": 100,
    "gb200": 100,
    "h200": 90,
    "h100": 90,
    "h20": 90,
    "gh200": 90,
    "l40": 89,
    "l4": 89,
    "rtx 6000 ada": 89,
    "rtx 40": 89,
    "a100": 80,
    "a10": 86,
    "rtx a6000": 86,
    "rtx 30": 86,
    "v100": 70,
    "t4": 75,
}


def compute_capability(accelerator: str) -> int | None:
    """Compute capability x 10 by the name of a GPU (120 = SM120); None if the name is not known."""
    name = accelerator.lower()
    hits = [known for known in _CAPABILITY if known in name]
    return _CAPABILITY[max(hits, key=len)] if hits else None


def model_runner(stack: Stack, variant: str) -> Runner:
    """The runner that vLLM 0.32/0.33 takes (`VllmConfig.use_v2_model_runner`).

    `VLLM_USE_V2_MODEL_RUNNER` decides; else V2 on GPUs unless the variant needs something that only V1 has.
    The CPU build has no Triton and takes V1.
    """
    chosen = stack.variant(variant)
    forced = {**stack.node.env, **stack.env, **chosen.env}.get("VLLM_USE_V2_MODEL_RUNNER")
    if forced is not None:
        return "v2" if forced.strip().lower() in {"1", "true"} else "v1"
    if stack.engine.build == "cpu" or needs_v1(stack, variant):
        return "v1"
    return "v2"


def needs_v1(stack: Stack, variant: str) -> str | None:
    """What a variant has that the V2 runner lacks, None if nothing."""
    spec = stack.variant(variant).speculation
    if spec is None:
        return None
    if spec.method in {"suffix", "custom_class"}:
        return f"method {spec.method}"
    if spec.options.get("parallel_drafting") and spec.method not in {"dflash", "dspark"}:
        return "parallel drafting"
    if spec.options.get("use_heterogeneous_vocab"):
        return "use_heterogeneous_vocab"
    return None


def needs_v2(stack: Stack, variant: str) -> str | None:
    """What a variant has that the V1 runner lacks, None if nothing."""
    spec = stack.variant(variant).speculation
    if spec is None:
        return None
    if spec.method == "dspark":
        return "method dspark"
    for option in ("enable_adaptive_verification", "draft_lm_head_quantization", "xpress_topc"):
        if spec.options.get(option):
            return option
    return None
