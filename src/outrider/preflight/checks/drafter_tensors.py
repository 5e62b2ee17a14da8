"""A drafter's tensors against its config, as the engine's classes lay them out.

Sources (vLLM 0.33.0): `model_executor/models/llama_eagle3.py`, `deepseek_eagle3.py`, `qwen3_dflash.py`.
Quantised drafters are not looked into: their tensors have other names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from outrider.preflight.checks.drafter_vocabulary import by_last_name
from outrider.preflight.facts.layout import expected_drafter_tensors
from outrider.preflight.report import Finding, found

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from outrider.preflight.checks.case import Case
    from outrider.preflight.facts.drafter import DrafterView
    from outrider.preflight.reading import TensorInfo

_OPTIONAL = frozenset({"embed_tokens.weight", "lm_head.weight", "d2t", "t2d", "mask_hidden", "mask_embedding"})
# Buffers that older exports carry and the engine's loader skips.
_SKIPPED = ("rotary_emb.inv_freq", "rotary_emb.cos_cached", "rotary_emb.sin_cached")


def check_tensors(case: Case) -> list[Finding]:
    """Missing, misshapen and unexpected tensors; embedding and head sharing; flags; masks; blocks."""
    view, drafter, spec = case.view, case.drafter, case.spec
    if view is None or view.shape is None or drafter is None or spec is None:
        return []
    findings = list(_block(case, view))
    if drafter.tensors is None or view.shape.quantization:
        return findings
    present = {normal_name(name): tensor for name, tensor in drafter.tensors.items()}
    if spec.method in {"eagle3", "dflash"}:
        findings += _layout(case, view, present)
        findings += _flags(case, view, present)
        findings += _embedding(case, view, present)
    if spec.method == "eagle3":
        findings += _mask_hidden(case, present)
    return findings


def normal_name(name: str) -> str:
    """`model.` dropped and `midlayer` written as `layers.0`, as the engine's loader does."""
    return name.removeprefix("model.").replace("midlayer.", "layers.0.")


def _layout(case: Case, view: DrafterView, present: Mapping[str, TensorInfo]) -> Iterable[Finding]:
    drafter = case.drafter
    expected = expected_drafter_tensors(view)
    if drafter is None or expected is None:
        return
    absent = sorted(name for name in expected if name not in present and not _may_be_absent(name))
    flagged = [name for name in absent if name.startswith(("input_norm", "fc_norm")) or name.endswith(".bias")]
    absent = [name for name in absent if name not in flagged]
    if absent:
        yield found("DRAFT015", drafter.label, f"{len(absent)} missing: {', '.join(absent[:6])}")
    if flagged:
        yield found("DRAFT026", drafter.label, f"the config asks for {', '.join(flagged[:4])}, which are absent")
    wrong = [
        f"{name} is {list(present[name].shape)}, expected {list(shape)}"
        for name, shape in sorted(expected.items())
        # Widths of fc and rows of the vocabulary have findings of their own.
        if name in present and name not in _OPTIONAL and name != "fc.weight" and present[name].shape != shape
    ]
    if wrong:
        yield found("DRAFT016", drafter.label, "; ".join(wrong[:4]))
    extra = sorted(
        name
        for name in present
        if name not in expected and name not in _OPTIONAL and not name.endswith(_SKIPPED)
    )  # fmt: skip
    dropped = [name for name in extra if name.startswith(("input_norm", "fc_norm")) or name.endswith(".bias")]
    extra = [name for name in extra if name not in dropped]
    if dropped:
        yield found("DRAFT026", drafter.label, f"the config does not ask for {', '.join(dropped[:4])}")
    if extra:
        yield found("DRAFT017", drafter.label, f"{len(extra)} unknown: {', '.join(extra[:6])}")


def _may_be_absent(name: str) -> bool:
    # The class makes a hidden_norm in every layer and uses the first layer's only.
    unused = name.startswith("layers.") and not name.startswith("layers.0.") and name.endswith("hidden_norm.weight")
    return unused or name in _OPTIONAL


def _flags(case: Case, view: DrafterView, present: Mapping[str, TensorInfo]) -> Iterable[Finding]:
    if case.drafter is not None and view.is_mla_class and view.norm_before_fc and "input_norm.weight" not in present:
        yield found("DRAFT026", case.drafter.where("config.json"), "norm_before_fc: the MLA class does not read it")


def _embedding(case: Case, view: DrafterView, present: Mapping[str, TensorInfo]) -> Iterable[Finding]:
    if by_last_name(present, "embed_tokens.weight") or case.drafter is None or view.shape is None:
        return
    if case.shape is not None and view.shape.hidden != case.shape.hidden:
        evidence = f"no embed_tokens; width {view.shape.hidden}, the target's is {case.shape.hidden}"
        yield found("DRAFT018", case.drafter.label, evidence)
    elif case.stack.parallel.pipeline > 1:
        evidence = f"no embed_tokens; parallel.pipeline {case.stack.parallel.pipeline}"
        yield found("DRAFT018", case.drafter.label, evidence)


def _mask_hidden(case: Case, present: Mapping[str, TensorInfo]) -> Iterable[Finding]:
    spec, drafter, view = case.spec, case.drafter, case.view
    if spec is None or drafter is None or view is None:
        return
    parallel = spec.options.get("parallel_drafting") or view.architecture.startswith(("Peagle", "PEagle"))
    if parallel and "mask_hidden" not in present:
        yield found("DRAFT027", drafter.label, "parallel drafting, no tensor mask_hidden")


def _block(case: Case, view: DrafterView) -> Iterable[Finding]:
    spec, drafter, shape = case.spec, case.drafter, case.shape
    if spec is None or drafter is None or shape is None:
        return
    where = drafter.where("config.json")
    needs_mask = spec.method in {"dflash", "dspark"} or (
        spec.method == "draft_model" and spec.options.get("parallel_drafting")
    )
    if needs_mask and (view.mask_token is None or not 0 <= view.mask_token < shape.vocabulary):
        yield found("DRAFT027", where, f"mask_token_id {view.mask_token}, vocabulary {shape.vocabulary}")
    if spec.method == "dflash" and view.block_size is not None:
        most = view.block_size if view.samples_from_anchor else view.block_size - 1
        if spec.k > most:
            yield found("DRAFT028", case.place("speculation.k"), f"k {spec.k}, block_size {view.block_size}: {most}")
    layer_types = view.config.get("layer_types")
    if spec.method == "dflash" and isinstance(layer_types, list) and case.runner == "v1":
        sliding = sum(kind == "sliding_attention" for kind in layer_types)
        if 0 < sliding < len(layer_types):
            yield found("DRAFT037", where, f"{sliding} of {len(layer_types)} layers are sliding, runner V1")
