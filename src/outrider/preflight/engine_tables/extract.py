"""Reads what one vLLM version supports out of its source, without importing it, and writes a table.

`python -m outrider.preflight.engine_tables.extract WHEEL_OR_PACKAGE_DIRECTORY VERSION` prints the table;
with `--write` it goes to `vllm-VERSION.json` beside this file. A wheel is enough: nothing is installed.
"""

from __future__ import annotations

import argparse
import json
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outrider.errors import EngineError
from outrider.preflight.engine_tables.classes import classes_with_base
from outrider.preflight.engine_tables.literals import Module, read_module
from outrider.preflight.engine_tables.members import class_members
from outrider.vllm_ext.expert_budget.interface import REQUIRED as ROUTER
from outrider.vllm_ext.interface import REQUIRED as SCHEDULER

if TYPE_CHECKING:
    from collections.abc import Mapping

_REGISTRY = "model_executor/models/registry.py"
_SPECULATIVE = "config/speculative.py"
_QUANTIZATION = "model_executor/layers/quantization"
_ARCH = "transformers_utils/model_arch_config_convertor.py"
_ROPE = "model_executor/layers/rotary_embedding/__init__.py"
_BACKENDS = "v1/attention/backends/registry.py"
_SPECULATORS = "transformers_utils/configs/speculators/algos.py"
_ENGINE_ARGS = "engine/arg_utils.py"
_SERVER_ARGS = ("entrypoints/launchers/cli_args.py", "entrypoints/common/cli_args.py")  # 0.32; 0.33
# Where the classes stand that the utility scheduler relies on.
_SCHEDULING = {
    "v1/core/sched/scheduler.py": ("Scheduler",),
    "v1/core/sched/output.py": ("SchedulerOutput",),
    "v1/outputs.py": ("ModelRunnerOutput",),
    "config/scheduler.py": ("SchedulerConfig",),
}
# Likewise for the expert budget.
_ROUTING = {
    "config/parallel.py": ("ParallelConfig",),
    "config/vllm.py": ("VllmConfig",),
    "model_executor/layers/fused_moe/fused_moe_method_base.py": ("FusedMoEMethodBase",),
    "model_executor/layers/fused_moe/router/base_router.py": ("BaseRouter",),
    "model_executor/layers/fused_moe/runner/moe_runner.py": ("MoERunner",),
    "v1/core/sched/output.py": ("CachedRequestData", "NewRequestData", "SchedulerOutput"),
    "v1/worker/gpu_worker.py": ("Worker",),
}
# Groups of the registry that serve text, and the names that the table gives them.
_GROUPS = {
    "text": "_TEXT_GENERATION_MODELS",
    "multimodal": "_MULTIMODAL_MODELS",
    "speculative": "_SPECULATIVE_DECODING_MODELS",
    "transformers": "_TRANSFORMERS_SUPPORTED_MODELS",
}
# Filled in by the engine itself; a user who writes them is refused or overridden.
_INTERNAL = frozenset(
    {"target_model_config", "target_parallel_config", "draft_parallel_config", "tensor_parallel_size"}
)


def read_sources(path: Path) -> dict[str, str]:
    """All Python files of a vLLM package, by path inside it.

    Args:
        path: a wheel, or the directory `vllm` of an installation.

    Raises:
        EngineError: neither, or it holds no vLLM.
    """
    sources: dict[str, str] = {}
    if path.is_dir():
        for file in path.rglob("*.py"):
            sources[file.relative_to(path).as_posix()] = file.read_text(encoding="utf-8")
    elif zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as wheel:
            for name in wheel.namelist():
                if name.startswith("vllm/") and name.endswith(".py"):
                    sources[name.removeprefix("vllm/")] = wheel.read(name).decode("utf-8")
    if _REGISTRY not in sources or _SPECULATIVE not in sources:
        raise EngineError(
            f"{path} holds no vLLM", next_step="give a vllm wheel, or the directory `vllm` of an installation"
        )
    return sources


def extract(sources: dict[str, str], version: str) -> dict[str, Any]:
    """The support table of one version; every list is sorted.

    Raises:
        EngineError: the source is arranged in a way that this extractor does not know.
    """
    modules = {name: read_module(name, sources[name]) for name in (_REGISTRY, _SPECULATIVE, _BACKENDS)}
    registry, speculative = modules[_REGISTRY], modules[_SPECULATIVE]
    groups = {name: registry.dictionary(constant) for name, constant in _GROUPS.items()}
    quantization = read_module(_QUANTIZATION, sources[f"{_QUANTIZATION}/__init__.py"])
    arch = read_module(_ARCH, sources[_ARCH])
    speculators = read_module(_SPECULATORS, sources[_SPECULATORS])
    cache = read_module("config/cache.py", sources["config/cache.py"])
    mla = arch.tuples_in("is_deepseek_mla")
    return {
        "engine": "vllm",
        "version": version,
        "architectures": {name: sorted(group) for name, group in groups.items()},
        "removed_architectures": dict(sorted(registry.dictionary("_PREVIOUSLY_SUPPORTED_MODELS").items())),
        "eagle3_targets": classes_with_base(sources, groups["text"] | groups["multimodal"], "SupportsEagle3"),
        "pipeline_targets": classes_with_base(sources, groups["text"] | groups["multimodal"], "SupportsPP"),
        "methods": sorted(speculative.literal("SpeculativeMethod")),
        "mtp_model_types": sorted(speculative.literal("MTPModelTypes")),
        "speculative_fields": _fields(speculative),
        "quantization": _quantization(quantization, sources),
        "kv_cache_dtypes": sorted(cache.literal("CacheDType")),
        "attention_backends": sorted(modules[_BACKENDS].enum("AttentionBackendEnum")),
        "mla_model_types": sorted(mla[0]),
        "mla_drafter_model_types": sorted(mla[1]),
        "rope_types": sorted(read_module(_ROPE, sources[_ROPE]).compared_with("scaling_type")),
        "tool_parsers": sorted(_parsers(sources, "tool_parsers", "_TOOL_PARSERS_TO_REGISTER")),
        "reasoning_parsers": sorted(_parsers(sources, "reasoning", "_REASONING_PARSERS_TO_REGISTER")),
        "speculators_types": sorted(speculators.decorated_with("register_speculator")),
        "speculators_model_types": {
            "eagle3": sorted(speculators.dictionary_in("update_eagle3", "eagle3_arch_map")),
            "peagle": sorted(speculators.dictionary_in("update_peagle", "peagle_arch_map")),
        },
        "flags": sorted(_flags(sources)),
        "scheduler_interface": _interface(sources, _SCHEDULING, SCHEDULER),
        "router_interface": _interface(sources, _ROUTING, ROUTER),
    }


def _interface(sources: dict[str, str], places: Mapping[str, tuple[str, ...]], required: frozenset[str]) -> list[str]:
    """Of what a part of Outrider in the engine relies on: the members that this version has."""
    members = [class_members(sources.get(file, ""), name) for file, names in places.items() for name in names]
    return sorted(required & set().union(*members))


def _fields(module: Module) -> dict[str, dict[str, Any]]:
    fields = module.fields("SpeculativeConfig")
    return {name: facts for name, facts in fields.items() if name not in _INTERNAL}


def _flags(sources: dict[str, str]) -> set[str]:
    """Options of `vllm serve`: of the engine, of the launcher, and a field each of the server's arguments."""
    place = next((path for path in _SERVER_ARGS if path in sources), None)
    if place is None:
        raise EngineError(
            "the engine's source is arranged differently: its command line is defined elsewhere",
            evidence=f"none of {', '.join(_SERVER_ARGS)}",
            next_step="find `make_arg_parser` in the new source and adapt engine_tables/extract.py",
        )
    server = read_module(place, sources[place])
    fields = server.fields("BaseFrontendArgs") | server.fields("FrontendArgs")
    options = server.options_added() | read_module(_ENGINE_ARGS, sources[_ENGINE_ARGS]).options_added()
    return options | {name.replace("_", "-") for name in fields}


def _parsers(sources: dict[str, str], package: str, constant: str) -> list[str]:
    module = read_module(package, sources[f"{package}/__init__.py"])
    return list(module.dictionary(constant))


def _quantization(module: Module, sources: dict[str, str]) -> dict[str, int | None]:
    """Quantisation method -> lowest compute capability x 10 it accepts; None where the source computes it."""
    lowest: dict[str, int] = {}
    for path, text in sources.items():
        if "quantization" in path and "get_min_capability" in text:
            lowest |= read_module(path, text).constants_returned("get_min_capability")
    config_class = module.dictionary_in("get_quantization_config", "method_to_config")
    return {
        method: lowest.get(str(config_class.get(method))) for method in sorted(module.literal("QuantizationMethods"))
    }


def main(argv: list[str]) -> int:
    """Command line; prints or writes one table."""
    parser = argparse.ArgumentParser(description="Extract the support table of one vLLM version from its source.")
    parser.add_argument("source", type=Path, help="a vllm wheel, or the directory `vllm` of an installation")
    parser.add_argument("version", help="for example 0.33.0")
    parser.add_argument("--write", action="store_true", help="write vllm-VERSION.json beside the extractor")
    args = parser.parse_args(argv)
    table = extract(read_sources(args.source), args.version)
    text = json.dumps(table, indent=1, sort_keys=True) + "\n"
    if args.write:
        Path(__file__).with_name(f"vllm-{args.version}.json").write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
