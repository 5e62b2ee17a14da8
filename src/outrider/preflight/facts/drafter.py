"""A drafter's config as the engine sees it, after the rewriting that vLLM does while it loads one.

Read from vLLM 0.32.0 and 0.33.0: `config/speculative.py`, `transformers_utils/configs/eagle.py`,
`transformers_utils/configs/speculators/`, `v1/worker/gpu_model_runner.py` (V1 runner),
`v1/worker/gpu/spec_decode/eagle/eagle3_utils.py` (V2 runner), `model_executor/models/llama_eagle3.py`,
`deepseek_eagle3.py` and `qwen3_dflash.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from outrider.preflight.facts.shape import Shape, architecture_of, integer, shape_of

if TYPE_CHECKING:
    from collections.abc import Mapping

Form = Literal["plain", "wrapped", "speculators"]
Runner = Literal["v1", "v2"]
# What algos.py writes as architecture for each speculators type (eagle3 and peagle depend on model_type).
_SPECULATORS_ARCHITECTURE = {
    ("eagle3", "llama"): "Eagle3LlamaForCausalLM",
    ("eagle3", "qwen3"): "Eagle3Qwen3ForCausalLM",
    ("peagle", "llama"): "PeagleLlamaForCausalLM",
    ("peagle", "qwen3"): "PeagleQwen3ForCausalLM",
}
_FIXED_ARCHITECTURE = {"dflash": "DFlashDraftModel", "dflash2": "DFlash2DraftModel", "dspark": "Qwen3DSparkModel"}
# Fields of a speculators config that algos.py copies beside the layer's own.
_COPIED = (
    "draft_vocab_size",
    "target_hidden_size",
    "norm_before_residual",
    "norm_before_fc",
    "fc_norm",
    "norm_output",
    "eagle_aux_hidden_state_layer_ids",
)


@dataclass(frozen=True, slots=True)
class DrafterView:
    """A drafter.

    Attributes:
        form: `plain` (config of the layer itself), `wrapped` (model_type eagle around `model`), `speculators`.
        config: the fields that the engine reads, flattened.
        architecture: class that the engine's registry is asked for.
        shape: dimensions; None if `problem` says why not.
        target_hidden: hidden size of the target that it was made for.
        draft_vocabulary: rows of its output head.
        problem: what the engine would refuse while reading the config.
    """

    form: Form
    config: Mapping[str, Any]
    architecture: str
    shape: Shape | None
    target_hidden: int | None
    draft_vocabulary: int | None
    problem: str | None = None
    verifier: str | None = None

    def aux_layers(self, runner: Runner) -> tuple[int, ...]:
        """Layer ids that a model runner finds in the config; empty means: it guesses (2, n//2, n-3)."""
        if ids := _ids(self.config.get("eagle_aux_hidden_state_layer_ids")):
            return ids
        dflash, eagle = _part(self.config, "dflash_config"), _part(self.config, "eagle_config")
        shifted = tuple(i + 1 for i in _ids(dflash.get("target_layer_ids")))
        if runner == "v1":
            return _ids(eagle.get("eagle_aux_hidden_state_layer_ids")) if eagle else shifted
        after = _ids(self.config.get("dspark_target_layer_ids")) or _ids(self.config.get("target_layer_ids"))
        return shifted or tuple(i + 1 for i in after) or _ids(dflash.get("layer_ids")) or _ids(eagle.get("layer_ids"))

    @property
    def stated_layers(self) -> tuple[int, ...]:
        """Layer ids written anywhere in the config, whether or not the runner reads that place."""
        eagle = _part(self.config, "eagle_config")
        return self.aux_layers("v2") or self.aux_layers("v1") or _ids(eagle.get("eagle_aux_hidden_state_layer_ids"))

    @property
    def fused_inputs(self) -> int:
        """Hidden states that EAGLE-3's `fc` joins, as its class counts them (top-level ids do not enter)."""
        stated = integer(self.config.get("num_aux_hidden_states"))
        eagle = _part(self.config, "eagle_config")
        return stated or len(_ids(eagle.get("eagle_aux_hidden_state_layer_ids"))) or 3

    @property
    def uses_aux(self) -> bool:
        """False for EAGLE-3 heads that take the last hidden state only."""
        return bool(_part(self.config, "eagle_config").get("use_aux_hidden_state", True))

    @property
    def norm_before_fc(self) -> bool:
        """One norm over the joined hidden states (EAGLE-3.1)."""
        eagle = _part(self.config, "eagle_config")
        return bool(eagle.get("norm_before_fc", self.config.get("norm_before_fc", False)))

    @property
    def fc_norm(self) -> bool:
        """One norm a joined hidden state (EAGLE-3.1)."""
        return bool(self.config.get("fc_norm", False))

    @property
    def is_mla_class(self) -> bool:
        """The engine builds it with multi-head latent attention."""
        return "Deepseek" in self.architecture or "DeepSeek" in self.architecture

    @property
    def mask_token(self) -> int | None:
        """Token id that fills the places of parallel drafting."""
        for part in (_part(self.config, "dflash_config"), _part(self.config, "eagle_config"), self.config):
            for name in ("mask_token_id", "pard_token", "ptd_token_id", "dspark_noise_token_id"):
                if (found := integer(part.get(name))) is not None:
                    return found
        return None

    @property
    def block_size(self) -> int | None:
        """Tokens that a block drafter was trained to fill at once."""
        dflash = _part(self.config, "dflash_config")
        for value in (
            self.config.get("block_size"),
            dflash.get("block_size"),
            self.config.get("dspark_block_size"),
        ):
            if (found := integer(value)) is not None:
                return found
        return None

    @property
    def samples_from_anchor(self) -> bool:
        """The block's first place proposes a token too."""
        return bool(_part(self.config, "dflash_config").get("sample_from_anchor", False))


def view_drafter(config: Mapping[str, Any], method: str) -> DrafterView:
    """Rewrite a drafter's config as the engine does for a method."""
    verifier = None
    if config.get("speculators_config") is not None:
        form: Form = "speculators"
        verifier = _verifier(config)
        flat, architecture, problem = _from_speculators(config)
    elif config.get("model_type") == "eagle" and isinstance(config.get("model"), dict):
        form = "wrapped"
        inner = config["model"]
        flat = {**inner, **{k: v for k, v in config.items() if k not in {"model", "model_type"}}}
        architecture, problem = _renamed(architecture_of(inner), method), None
    else:
        form = "plain"
        flat = dict(config)
        architecture, problem = _renamed(architecture_of(config), method), None
    shape: Shape | None = None
    try:
        shape = shape_of(flat)
    except ValueError as error:
        problem = problem or str(error)
    hidden = shape.hidden if shape else None
    vocabulary = shape.vocabulary if shape else None
    return DrafterView(
        form=form,
        config=flat,
        architecture=architecture,
        shape=shape,
        target_hidden=integer(flat.get("target_hidden_size")) or hidden,
        draft_vocabulary=integer(flat.get("draft_vocab_size")) or vocabulary,
        problem=problem,
        verifier=verifier,
    )


def default_aux_layers(layers: int) -> tuple[int, int, int]:
    """What the engine guesses for a target of that depth."""
    return (2, layers // 2, layers - 3)


def _from_speculators(config: Mapping[str, Any]) -> tuple[dict[str, Any], str, str | None]:
    kind = str(config.get("speculators_model_type", ""))
    layer = config.get("transformer_layer_config")
    if not isinstance(layer, dict):
        return dict(config), "", "transformer_layer_config is absent or no object"
    flat: dict[str, Any] = {**layer, **{name: config[name] for name in _COPIED if config.get(name) is not None}}
    model_type = str(layer.get("model_type", "llama"))
    architecture = _SPECULATORS_ARCHITECTURE.get((kind, model_type)) or _FIXED_ARCHITECTURE.get(kind, "")
    if kind == "peagle":
        flat["pard_token"] = config.get("mask_token_id")
    if kind in _FIXED_ARCHITECTURE:
        ids = _ids(config.get("aux_hidden_state_layer_ids"))
        flat["eagle_aux_hidden_state_layer_ids"] = list(ids)
        flat["dflash_config"] = {
            "mask_token_id": config.get("mask_token_id"),
            "target_layer_ids": [i - 1 for i in ids],
            "sample_from_anchor": config.get("sample_from_anchor", False),
        }
        flat["block_size"] = config.get("block_size")
        if not ids:
            return flat, architecture, "aux_hidden_state_layer_ids is absent"
    flat["architectures"] = [architecture]
    if not architecture:
        return flat, architecture, f"speculators_model_type {kind!r} with layer model_type {model_type!r}"
    return flat, architecture, None


def _verifier(config: Mapping[str, Any]) -> str | None:
    speculators = config.get("speculators_config")
    verifier = speculators.get("verifier") if isinstance(speculators, dict) else None
    name = verifier.get("name_or_path") if isinstance(verifier, dict) else None
    return name if isinstance(name, str) else None


def _renamed(architecture: str, method: str) -> str:
    """EAGLEConfig's renaming: `LlamaForCausalLM` becomes `Eagle3LlamaForCausalLM` and so on."""
    if not architecture:
        return ""
    if method == "eagle" and not architecture.startswith("Eagle"):
        return f"Eagle{architecture}"
    if method == "eagle3" and not (architecture.startswith("Eagle3") or architecture.endswith("Eagle3")):
        return f"Eagle3{architecture}"
    dflash = architecture.startswith("DFlash") or architecture.endswith("DFlash")
    if method == "dflash" and not dflash and architecture != "LiLiCorrDraftModel":
        return f"DFlash{architecture}"
    return architecture


def _part(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = config.get(name)
    return part if isinstance(part, dict) else {}


def _ids(value: object) -> tuple[int, ...]:
    if isinstance(value, list | tuple) and value and all(integer(item) is not None for item in value):
        return tuple(value)
    return ()
