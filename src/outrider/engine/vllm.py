"""vLLM: argv, environment, start-up log and metrics.

Facts were read from vLLM 0.32.0 (CPU build) and 0.33.0; where an older name is still met in the field it is
listed with the version that dropped it. No other module names a vLLM flag or metric.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outrider.engine import vllm_budget, vllm_metrics, vllm_utility, vllm_workers
from outrider.engine.base import Launch, StartupFacts
from outrider.engine.exposition import metric_names, old_names
from outrider.engine.flags import free_flags, lossy_settings, refuse_lossy, refuse_typed, weight_bytes, words

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from outrider.engine.base import EngineScrape
    from outrider.stack.schema import Speculation, Stack, Variant

# Log lines that a start passes, in order, and the share of the start that lies behind each one.
_PROGRESS: tuple[tuple[str, float], ...] = (
    (r"non-default args", 0.10),
    (r"Resolved architecture", 0.25),
    (r"Initializing a V1 LLM engine", 0.40),
    (r"Starting to load model", 0.55),
    (r"shards: +(?P<percent>\d+)% Completed", 0.69),
    (r"Loading weights took", 0.70),
    (r"KV cache size", 0.85),
    (r"init engine .* took", 0.93),
    (r"Starting vLLM server", 0.99),
)
# Settings that the schema types; the same flag in `flags` would be written twice.
_TYPED_FLAGS: Mapping[str, str] = {
    "model": "target.model",
    "revision": "target.revision",
    "served-model-name": "target.served_name",
    "dtype": "target.dtype",
    "max-model-len": "target.max_model_len",
    "trust-remote-code": "target.trust_remote_code",
    "tensor-parallel-size": "parallel.tensor",
    "pipeline-parallel-size": "parallel.pipeline",
    "data-parallel-size": "parallel.data",
    "enable-expert-parallel": "parallel.expert",
    "gpu-memory-utilization": "memory.gpu_utilization",
    "kv-cache-dtype": "memory.kv_cache_dtype",
    "max-num-seqs": "memory.max_num_seqs",
    "speculative-config": "variants.*.speculation",
    "scheduler-cls": "variants.*.speculation.auto",
    "worker-extension-cls": "variants.*.expert_budget",
    "host": "the runtime",
    "port": "the runtime",
    "api-key": "the runtime (a secret file, never argv)",
}
_SCHEDULE = "num_speculative_tokens_per_batch_size"
# rejection_sample_method values that keep the target's distribution.
_LOSSLESS_REJECTION = frozenset({"standard", "block"})


class VllmAdapter:
    """Facts about vLLM."""

    name = "vllm"
    tpot_bounds_s: tuple[float, ...] = vllm_metrics.TPOT_BOUNDS_S
    key_variable: str | None = "VLLM_API_KEY"

    def launch(
        self,
        stack: Stack,
        variant: str,
        *,
        host: str,
        port: int,
        model_dir: Path | None,
        drafter_dir: Path | None,
    ) -> Launch:
        """Render how to start a variant.

        Args:
            stack: the stack.
            variant: name of one of its variants.
            host: address to listen on.
            port: TCP port to listen on.
            model_dir: local files of the target; None names the repository and its revision instead.
            drafter_dir: local files of the drafter, likewise.

        Raises:
            StackError: no such variant; a flag that the schema types; a lossy setting without `allow_lossy`; `auto`
                where k cannot change.
        """
        chosen = stack.variant(variant)
        refuse_typed(stack, variant, _TYPED_FLAGS)
        refuse_lossy(stack, variant, self.lossy_settings(stack, variant))
        argv = [
            *_server_command(stack, model_dir),
            *_server_flags(stack, host=host, port=port, local=model_dir is not None),
        ]
        for flag, value in free_flags(stack, variant).items():
            argv += words(flag, value, negated=True)
        argv += vllm_workers.flags(chosen)
        spec = chosen.speculation
        if spec is not None:
            config = speculative_config(spec, drafter_dir)
            if spec.auto:
                config[_SCHEDULE] = vllm_utility.engine_schedule(stack, variant, spec)
                argv += vllm_utility.FLAGS
            argv += ["--speculative-config", json.dumps(config, separators=(",", ":"))]
        offline = model_dir is not None and (spec is None or spec.drafter is None or drafter_dir is not None)
        return Launch(
            argv=tuple(argv),
            env=_environment(stack, chosen, offline=offline),
            port=port,
            health_path="/health",
            metrics_path="/metrics",
            weight_bytes=weight_bytes(stack, variant),
            progress=_PROGRESS,
        )

    def lossy_settings(self, stack: Stack, variant: str) -> list[str]:
        """Settings of a variant that may change what the target would have answered."""
        chosen = stack.variant(variant)
        found = lossy_settings(stack, variant)
        if chosen.speculation:
            rejection = str(chosen.speculation.options.get("rejection_sample_method", "standard"))
            if rejection not in _LOSSLESS_REJECTION:
                found.append(f"rejection_sample_method {rejection} accepts tokens that the target would not emit")
        if chosen.expert_budget:
            budget = vllm_budget.settings(chosen.expert_budget)
            found.append(f"expert_budget routes decoded tokens through {budget.describe()}")
        return found

    def startup_facts(self, log_lines: Iterable[str]) -> StartupFacts:
        """Read what the engine chose for itself from its start-up log."""
        found: dict[str, str] = {}
        for line in log_lines:
            for fact, pattern in _FACTS:
                if fact not in found and (hit := pattern.search(line)):
                    found[fact] = next(group for group in hit.groups() if group)
        kv_tokens = found.get("kv_tokens")
        graph, layers = found.get("graph_mode"), found.get("aux_layers")
        return StartupFacts(
            version=found.get("version"),
            attention_backend=found.get("attention_backend"),
            graph_mode="eager" if graph == "NONE" else graph,
            model_runner=found["model_runner"].lower() if "model_runner" in found else None,
            kv_tokens=int(kv_tokens.replace(",", "")) if kv_tokens else None,
            spec_method=found.get("spec_method"),
            aux_layers=tuple(int(layer) for layer in layers.split(",") if layer.strip()) if layers else None,
        )

    def isolated_cache(self, salt: str) -> dict[str, str]:
        """Request fields that keep requests with another salt out of each other's prefix cache."""
        # vLLM allows 128 characters without @, / and backslash: a digest is always fine.
        return {"cache_salt": hashlib.sha256(salt.encode()).hexdigest()[:32]}

    profiler_paths = ("/start_profile", "/stop_profile")

    def profiler_flags(self, directory: Path) -> dict[str, Any]:
        """Torch's profiler in the worker only, without Python stacks, which cost more than the steps themselves.

        Since 0.13 a config and no longer VLLM_TORCH_PROFILER_DIR (vllm/config/profiler.py, 0.32.0).
        """
        return {
            "profiler-config": {
                "profiler": "torch",
                "torch_profiler_dir": str(directory),
                "torch_profiler_with_stack": False,
                "ignore_frontend": True,
            }
        }

    def profiler_request(self, *, skip: int, steps: int) -> dict[str, object]:
        """Bounds that the worker counts itself (vllm/entrypoints/serve/profile/api_router.py, 0.32.0)."""
        return {"delay_iterations": skip, "max_iterations": steps}

    def read_metrics(self, text: str) -> EngineScrape:
        """Read one Prometheus exposition of vLLM.

        Raises:
            EngineError: the text is no exposition, or none of vLLM's.
        """
        return vllm_metrics.read(text)

    def metrics_query(self, figure: str, *, by: str, window: str) -> str | None:
        """PromQL of a figure; see `EngineAdapter.metrics_query`."""
        return vllm_metrics.query(figure, by, window)

    def metric_names(self) -> set[str]:
        """Every metric name that `metrics_query` may use."""
        return metric_names(vllm_metrics.NAMES)

    def dropped_metric_names(self) -> set[str]:
        """Names of versions before."""
        return old_names(vllm_metrics.NAMES)


_FACTS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("version", re.compile(r"Initializing a V1 LLM engine \(v([^)]+)\)")),
    ("attention_backend", re.compile(r"Using (?:AttentionBackendEnum\.)?([A-Z0-9_]+) attention backend")),
    ("attention_backend", re.compile(r"[Uu]sing ([A-Z0-9_]*MLA[A-Z0-9_]*) (?:attention )?backend")),
    ("graph_mode", re.compile(r"'cudagraph_mode': <CUDAGraphMode\.([A-Z_]+)")),
    ("model_runner", re.compile(r"Using (V2) Model Runner|using the (V1) model runner")),
    ("kv_tokens", re.compile(r"KV cache size: ([\d,]+) tokens")),
    ("aux_layers", re.compile(r"Using auxiliary layers from speculative config: \(([\d, ]+)\)")),
    ("aux_layers", re.compile(r"Using Eagle3 auxiliary layers from (?:config|model): \(([\d, ]+)\)")),
    ("spec_method", re.compile(r"speculative_config=SpeculativeConfig\(method='([^']+)'")),
)


def engine_python() -> str:
    """Interpreter that has the engine: `OUTRIDER_ENGINE_PYTHON`, else the one that runs Outrider."""
    return os.environ.get("OUTRIDER_ENGINE_PYTHON") or sys.executable


def speculative_config(spec: Speculation, drafter_dir: Path | None) -> dict[str, object]:
    """The engine's SpeculativeConfig (fields as of 0.32/0.33, which forbid unknown ones)."""
    config: dict[str, object] = {"method": spec.method, "num_speculative_tokens": spec.k}
    if spec.drafter is not None:
        if drafter_dir is not None:
            config["model"] = str(drafter_dir)
        else:
            config["model"] = spec.drafter.model
            if spec.drafter.revision:
                config["revision"] = spec.drafter.revision
    if spec.schedule:
        config[_SCHEDULE] = [list(band) for band in spec.schedule]
    if spec.lookup_min:
        config["prompt_lookup_min"] = spec.lookup_min
    if spec.lookup_max:
        config["prompt_lookup_max"] = spec.lookup_max
    return config | dict(spec.options)


def _server_command(stack: Stack, model_dir: Path | None) -> list[str]:
    model = str(model_dir) if model_dir else stack.target.model
    if stack.engine.build == "cpu":
        # The CPU rebuild's `vllm` script looks for a distribution named vllm and dies; the module works.
        return [engine_python(), "-m", "vllm.entrypoints.openai.api_server", "--model", model]
    if os.environ.get("OUTRIDER_ENGINE_PYTHON"):
        return [engine_python(), "-m", "vllm.entrypoints.cli.main", "serve", model]
    return ["vllm", "serve", model]


def _server_flags(stack: Stack, *, host: str, port: int, local: bool) -> list[str]:
    target, parallel, memory = stack.target, stack.parallel, stack.memory
    flags: dict[str, object] = {"host": host, "port": port, "served-model-name": target.served_name}
    if target.revision and not local:
        flags["revision"] = target.revision
        if target.trust_remote_code:
            flags |= {"code-revision": target.revision, "tokenizer-revision": target.revision}
    if target.trust_remote_code:
        flags["trust-remote-code"] = True
    flags |= {"dtype": target.dtype, "max-model-len": target.max_model_len}
    for flag, size in (("tensor", parallel.tensor), ("pipeline", parallel.pipeline), ("data", parallel.data)):
        if size > 1:
            flags[f"{flag}-parallel-size"] = size
    if parallel.expert:
        flags["enable-expert-parallel"] = True
    if memory.gpu_utilization is not None:
        flags["gpu-memory-utilization"] = memory.gpu_utilization
    if memory.kv_cache_dtype != "auto":
        flags["kv-cache-dtype"] = memory.kv_cache_dtype
    if memory.max_num_seqs is not None:
        flags["max-num-seqs"] = memory.max_num_seqs
    return [word for flag, value in flags.items() for word in words(flag, value, negated=True)]


def _environment(stack: Stack, variant: Variant, *, offline: bool) -> dict[str, str]:
    env = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
    if offline:
        env["HF_HUB_OFFLINE"] = "1"
    if stack.engine.build == "cpu":
        env |= _cpu_environment(stack)
    if variant.speculation is not None and variant.speculation.auto:
        env |= vllm_utility.environment(variant.speculation, stack)
    env |= vllm_workers.environment(variant, stack.engine.build)
    if variant.expert_budget is not None:
        env |= vllm_budget.environment(variant.expert_budget)
    return env | stack.node.env | stack.env | variant.env


def _cpu_environment(stack: Stack) -> dict[str, str]:
    env: dict[str, str] = {}
    if stack.memory.cpu_kv_gib is not None:
        env["VLLM_CPU_KVCACHE_SPACE"] = str(stack.memory.cpu_kv_gib)
    # Without Intel's OpenMP preloaded, speculation on CPU loses its gain (vllm/v1/worker/cpu_worker.py warns).
    openmp = Path(engine_python()).parent.parent / "lib" / "libiomp5.so"
    if openmp.is_file():
        env["LD_PRELOAD"] = str(openmp)
    return env
