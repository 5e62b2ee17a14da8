"""A drafter against its target: kind, widths, vocabulary, positions, splitting."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outrider.preflight.checks.drafter_layers import check_layers
from outrider.preflight.checks.drafter_tensors import check_tensors
from outrider.preflight.checks.drafter_vocabulary import check_vocabulary
from outrider.preflight.checks.mtp import check_mtp
from outrider.preflight.checks.tokenizer import check_drafter_tokenizer
from outrider.preflight.report import Finding, found
from outrider.stack.names import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable

    from outrider.preflight.checks.case import Case
    from outrider.preflight.facts.drafter import DrafterView
    from outrider.preflight.facts.shape import Shape

# Methods whose drafter runs on hidden states of inner layers of the target.
AUXILIARY = frozenset({"eagle3", "dflash", "dspark"})
# Methods whose drafter runs on hidden states of the target at all.
ON_HIDDEN_STATES = AUXILIARY | {"eagle"}
# Rotary types that use max_position_embeddings only to size a table (config/speculative.py, 0.33.0).
_RESIZABLE_ROPE = frozenset({"default", "linear", "llama3", "ntk", "proportional"})
_ROPE_NEEDS = {"yarn": ("factor",), "linear": ("factor",), "dynamic": ("factor",), "llama3": ("factor",)}


def check_drafter(case: Case) -> list[Finding]:
    """All findings about what a variant drafts with; none for look-up methods."""
    spec, shape = case.spec, case.shape
    if spec is None or shape is None:
        return []
    findings = list(_target_can(case))
    if spec.method == "mtp":
        return [*findings, *check_mtp(case)]
    if spec.drafter is not None and not spec.drafter.is_local and spec.drafter.revision is None:
        findings.append(found("DRAFT035", case.place("speculation.drafter"), spec.drafter.model))
    if case.view is None or case.drafter is None:
        return findings
    view = case.view
    of_class = list(_known(case, view))
    findings += of_class
    if view.problem is not None:
        return [*findings, found("DRAFT002", case.drafter.where("config.json"), view.problem)]
    if view.shape is None:
        return findings
    return [
        *findings,
        *_widths(case, view, shape),
        *check_vocabulary(case),
        *check_layers(case),
        # What an unknown class expects is unknown too.
        *(check_tensors(case) if not any(one.code == "DRAFT001" for one in of_class) else ()),
        *check_drafter_tokenizer(case),
        *_positions(case, view.shape),
        *_rope(case, view.shape),
        *_splitting(case, view.shape),
        *_casting(case, view.shape),
        *_made_for(case, view),
    ]


def _target_can(case: Case) -> Iterable[Finding]:
    spec, table, shape = case.spec, case.table, case.shape
    if spec is None or table is None or shape is None or spec.method not in AUXILIARY:
        return
    if shape.architecture in table.targets and shape.architecture not in table.eagle3_targets:
        evidence = f"{shape.architecture}, method {spec.method}, vllm {table.version}"
        yield found("DRAFT036", case.place("speculation.method"), evidence)


def _known(case: Case, view: DrafterView) -> Iterable[Finding]:
    spec, table, drafter = case.spec, case.table, case.drafter
    if spec is None or drafter is None or table is None or view.problem is not None:
        return
    where = drafter.where("config.json")
    if spec.method == "draft_model":
        known = table.targets
    else:
        known = frozenset(a for a in table.architectures["speculative"] if _fits(a, spec.method))
    if view.architecture not in known:
        hint = did_you_mean(view.architecture, known)
        yield found("DRAFT001", where, f"{view.architecture or 'no architecture'} for method {spec.method}{hint}")
    quantization = view.shape.quantization if view.shape else {}
    method = str(quantization.get("quant_method", "")).lower()
    if quantization and method not in table.quantization:
        yield found("DRAFT038", where, f"quant_method {method!r}")
    if view.is_mla_class and view.shape is not None:
        model_type = str(view.config.get("model_type", ""))
        if view.form != "speculators" and model_type not in table.mla_drafter_model_types:
            listed = ", ".join(sorted(table.mla_drafter_model_types))
            yield found("DRAFT025", where, f"model_type {model_type!r}; known as MLA: {listed}")


def _fits(architecture: str, method: str) -> bool:
    """Whether a drafter class of the registry belongs to a method, by the engine's naming."""
    match method:
        case "eagle3":
            return "Eagle3" in architecture or architecture.startswith(("Peagle", "PEagle"))
        case "eagle":
            return architecture.startswith("Eagle") and "Eagle3" not in architecture
        case "dflash":
            return "DFlash" in architecture or architecture in {"LiLiCorrDraftModel", "MuseGlimmerAssistantModel"}
        case "dspark":
            return "DSpark" in architecture
        case _:
            return True


def _widths(case: Case, view: DrafterView, shape: Shape) -> Iterable[Finding]:
    spec, drafter = case.spec, case.drafter
    if spec is None or drafter is None or spec.method not in ON_HIDDEN_STATES:
        return
    # EAGLE-1 heads have no projection for another width; EAGLE-3 and DFlash project in `fc`.
    width = view.target_hidden if spec.method in AUXILIARY else view.shape and view.shape.hidden
    if width != shape.hidden:
        evidence = f"made for {width}, the target has {shape.hidden}"
        yield found("DRAFT003", drafter.where("config.json"), evidence)


def _positions(case: Case, shape: Shape) -> Iterable[Finding]:
    spec, drafter, served = case.spec, case.drafter, case.stack.target.max_model_len
    if spec is None or drafter is None or shape.max_positions is None or shape.max_positions >= served:
        return
    stated = case.view and case.view.config.get("max_position_embeddings")
    evidence = f"drafter {shape.max_positions} (max_position_embeddings {stated}), served {served}"
    yield found(_position_code(case, spec.method, shape), drafter.where("config.json"), evidence)


def _position_code(case: Case, method: str, shape: Shape) -> str:
    """What the engine does about a drafter that is shorter than the served length."""
    if method == "draft_model":
        return "DRAFT021" if case.runner == "v2" and _since_0_33(case) else "DRAFT020"
    if not _since_0_33(case):
        # Only EAGLE heads are resized, whatever their rotary type.
        return "DRAFT020" if method in {"eagle", "eagle3"} else "DRAFT039"
    if shape.rope.get("rope_type") in _RESIZABLE_ROPE:
        return "DRAFT020"
    return "DRAFT021" if case.runner == "v2" else "DRAFT020"


def _since_0_33(case: Case) -> bool:
    return [int(part) for part in case.stack.engine.version.split(".")] >= [0, 33, 0]


def _rope(case: Case, shape: Shape) -> Iterable[Finding]:
    drafter, table = case.drafter, case.table
    if drafter is None:
        return
    kind = str(shape.rope.get("rope_type", "default"))
    where = drafter.where("config.json")
    if table is not None and kind not in table.rope_types | {"mrope"}:
        hint = did_you_mean(kind, table.rope_types)
        yield found("DRAFT022", where, f"rope_type {kind!r}{hint}")
        return
    absent = [name for name in _ROPE_NEEDS.get(kind, ()) if not isinstance(shape.rope.get(name), int | float)]
    theta = shape.rope.get("rope_theta")
    if absent:
        yield found("DRAFT022", where, f"rope_type {kind} without {', '.join(absent)}")
    elif theta is not None and (not isinstance(theta, int | float) or isinstance(theta, bool) or theta <= 0):
        yield found("DRAFT022", where, f"rope_theta {theta!r}")


def _splitting(case: Case, shape: Shape) -> Iterable[Finding]:
    spec, drafter, tensor = case.spec, case.drafter, case.stack.parallel.tensor
    if spec is None or drafter is None:
        return
    own = spec.options.get("draft_tensor_parallel_size", tensor)
    where = case.place("speculation.options.draft_tensor_parallel_size")
    if own not in {1, tensor} or (spec.method == "draft_model" and own != tensor):
        yield found("DRAFT024", where, f"{own}, the target's is {tensor}, method {spec.method}")
    elif isinstance(own, int) and (shape.heads % own or (shape.kv_heads % own and own % shape.kv_heads)):
        evidence = f"{shape.heads} heads, {shape.kv_heads} KV heads, tensor-parallel {own}"
        yield found("DRAFT024", drafter.where("config.json"), evidence)


def _casting(case: Case, shape: Shape) -> Iterable[Finding]:
    served = case.stack.target.dtype
    wanted = (case.shape.dtype if case.shape else None) if served == "auto" else served
    if case.drafter is not None and shape.dtype and wanted and shape.dtype != wanted and not shape.quantization:
        yield found("DRAFT023", case.drafter.where("config.json"), f"{shape.dtype}, the target runs in {wanted}")


def _made_for(case: Case, view: DrafterView) -> Iterable[Finding]:
    if view.verifier is None or case.drafter is None:
        return
    ours = {case.stack.target.model.rsplit("/", 1)[-1].lower(), case.stack.target.served_name.lower()}
    # Training serves the target from a path; only a repository id says whose drafter this is.
    is_repository = view.verifier.count("/") == 1 and not view.verifier.startswith(("/", ".", "~"))
    if is_repository and view.verifier.rsplit("/", 1)[-1].lower() not in ours:
        evidence = f"verifier {view.verifier}, target {case.stack.target.model}"
        yield found("DRAFT034", case.drafter.where("config.json"), evidence)
