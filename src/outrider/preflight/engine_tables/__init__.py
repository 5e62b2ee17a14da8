"""What the pinned engine versions support: tables that `extract.py` reads from the engine's source."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any

from pydantic import BaseModel, ConfigDict


class EngineTable(BaseModel):
    """What one engine version knows; see `extract.py` for where each list is read.

    Attributes:
        architectures: registry groups (`text`, `multimodal`, `speculative`, `transformers`) -> architectures.
        removed_architectures: architecture -> last version that served it.
        eagle3_targets: architectures that can hand auxiliary hidden states to a drafter.
        pipeline_targets: architectures that can be split over pipeline stages.
        methods: speculative methods, deprecated spellings included.
        mtp_model_types: model types that mean method `mtp`.
        speculative_fields: field of SpeculativeConfig -> type as written, allowed values, bounds.
        quantization: method -> lowest compute capability x 10, None if any or computed.
        mla_model_types: `model_type`s whose KV cache is MLA's.
        mla_drafter_model_types: the shorter list that holds for EAGLE drafters.
        speculators_types: `speculators_model_type`s of speculators-format drafters.
        speculators_model_types: of these, the layer `model_type`s that `eagle3` and `peagle` accept.
        flags: long options of `vllm serve`, without dashes; an option that is on or off also takes `no-`.
        scheduler_interface: what the utility scheduler relies on (`vllm_ext.interface`), as far as it is there.
        router_interface: what the expert budget relies on (`vllm_ext.expert_budget.interface`), likewise.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    engine: str
    version: str
    architectures: dict[str, frozenset[str]]
    removed_architectures: dict[str, str]
    eagle3_targets: frozenset[str]
    pipeline_targets: frozenset[str]
    methods: frozenset[str]
    mtp_model_types: frozenset[str]
    speculative_fields: dict[str, dict[str, Any]]
    quantization: dict[str, int | None]
    kv_cache_dtypes: frozenset[str]
    attention_backends: frozenset[str]
    mla_model_types: frozenset[str]
    mla_drafter_model_types: frozenset[str]
    rope_types: frozenset[str]
    tool_parsers: frozenset[str]
    reasoning_parsers: frozenset[str]
    speculators_types: frozenset[str]
    speculators_model_types: dict[str, frozenset[str]]
    flags: frozenset[str]
    scheduler_interface: frozenset[str]
    router_interface: frozenset[str]

    @property
    def targets(self) -> frozenset[str]:
        """Architectures that can be served as a target."""
        return frozenset().union(*(self.architectures[group] for group in ("text", "multimodal", "transformers")))


def versions(engine: str = "vllm") -> list[str]:
    """Versions that have a table, oldest first."""
    names = [entry.name for entry in resources.files(__name__).iterdir() if entry.name.endswith(".json")]
    found = [name.removeprefix(f"{engine}-").removesuffix(".json") for name in names if name.startswith(engine)]
    return sorted(found, key=lambda version: [int(part) for part in version.split(".")])


@cache
def engine_table(engine: str, version: str) -> EngineTable | None:
    """The table of one engine version, None if there is none."""
    if version not in versions(engine):
        return None
    text = (resources.files(__name__) / f"{engine}-{version}.json").read_text(encoding="utf-8")
    return EngineTable.model_validate(json.loads(text))
