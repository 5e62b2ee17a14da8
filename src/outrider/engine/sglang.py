"""SGLang: argv, environment, start-up log and metrics.

Facts were read from SGLang 0.5.23 (`srt/arg_groups/fields/*.py` for flags, `entrypoints/http_server.py` for paths). No
SGLang server has been started by this project yet: it needs a GPU, and docs/observing.md says what was checked instead.
"""

from __future__ import annotations

import hashlib
import os
import re
from typing import TYPE_CHECKING, Any

from outrider.engine import sglang_metrics
from outrider.engine.base import Launch, StartupFacts
from outrider.engine.exposition import metric_names, old_names
from outrider.engine.flags import free_flags, lossy_settings, refuse_lossy, refuse_typed, weight_bytes, words
from outrider.errors import EngineError, StackError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from outrider.engine.base import EngineScrape
    from outrider.stack.schema import Speculation, Stack, Variant

# Stack's method -> SGLang's algorithm. Others need facts that nobody has checked here.
_ALGORITHMS: Mapping[str, str] = {"eagle": "EAGLE", "eagle3": "EAGLE3"}
# Settings that the schema types; the same flag in `flags` would be written twice.
_TYPED_FLAGS: Mapping[str, str] = {
    "model-path": "target.model",
    "revision": "target.revision",
    "served-model-name": "target.served_name",
    "dtype": "target.dtype",
    "context-length": "target.max_model_len",
    "trust-remote-code": "target.trust_remote_code",
    "tp-size": "parallel.tensor",
    "pp-size": "parallel.pipeline",
    "dp-size": "parallel.data",
    "ep-size": "parallel.expert",
    "mem-fraction-static": "memory.gpu_utilization",
    "kv-cache-dtype": "memory.kv_cache_dtype",
    "max-running-requests": "memory.max_num_seqs",
    "speculative-algorithm": "variants.*.speculation.method",
    "speculative-draft-model-path": "variants.*.speculation.drafter.model",
    "speculative-draft-model-revision": "variants.*.speculation.drafter.revision",
    "speculative-num-steps": "variants.*.speculation.k",
    "speculative-num-draft-tokens": "variants.*.speculation.k",
    "speculative-eagle-topk": "a chain: k tokens one after the other",
    "enable-metrics": "Outrider (always on)",
    "host": "the runtime",
    "port": "the runtime",
    "api-key": "nothing yet: SGLang takes it on its command line, which every user can read",
}
_PROGRESS: tuple[tuple[str, float], ...] = (
    (r"server_args=", 0.05),
    (r"Load weight begin", 0.15),
    (r"shards: +(?P<percent>\d+)% Completed", 0.69),
    (r"Load weight end", 0.70),
    (r"Capture .*graph end", 0.90),
    (r"max_total_num_tokens=", 0.95),
    (r"The server is fired up", 0.99),
)
# Below 1 they accept what the target would not have emitted.
_THRESHOLDS = ("speculative-accept-threshold-single", "speculative-accept-threshold-acc")


class SglangAdapter:
    """Facts about SGLang."""

    name = "sglang"
    tpot_bounds_s: tuple[float, ...] = sglang_metrics.TPOT_BOUNDS_S
    key_variable: str | None = None
    profiler_paths: tuple[str, str] = ("/start_profile", "/stop_profile")

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
        """Render how to start a variant; see `VllmAdapter.launch` for the arguments.

        Raises:
            StackError: no such variant; a flag that the schema types; a method or option that SGLang does not have in
                this form; a lossy setting without `allow_lossy`.
        """
        chosen = stack.variant(variant)
        refuse_typed(stack, variant, _TYPED_FLAGS)
        _refuse_what_is_not_known(stack, variant, chosen)
        refuse_lossy(stack, variant, self.lossy_settings(stack, variant))
        spec = chosen.speculation
        flags: dict[str, object] = _server_flags(stack, host=host, port=port, local=model_dir is not None)
        flags |= free_flags(stack, variant)
        if spec is not None:
            flags |= _speculation(spec, drafter_dir)
        offline = model_dir is not None and (spec is None or drafter_dir is not None)
        return Launch(
            argv=(
                *(sglang_python(), "-m", "sglang.launch_server", "--model-path", str(model_dir or stack.target.model)),
                *(word for flag, value in flags.items() for word in words(flag, value, negated=False)),
            ),
            env=_environment(stack, chosen, offline=offline),
            port=port,
            health_path="/health",
            metrics_path="/metrics",
            weight_bytes=weight_bytes(stack, variant),
            progress=_PROGRESS,
        )

    def lossy_settings(self, stack: Stack, variant: str) -> list[str]:
        """Settings of a variant that may change what the target would have answered."""
        found, flags = lossy_settings(stack, variant), free_flags(stack, variant)
        for option in _THRESHOLDS:
            value = flags.get(option)
            if isinstance(value, int | float) and value < 1:
                found.append(f"flag {option} {value} accepts tokens that the target would not emit")
        return found

    def startup_facts(self, log_lines: Iterable[str]) -> StartupFacts:
        """Read what the engine chose for itself from its start-up log; SGLang writes less than vLLM does."""
        found: dict[str, str] = {}
        for line in log_lines:
            for fact, pattern in _FACTS:
                if fact not in found and (hit := pattern.search(line)):
                    found[fact] = hit[1]
        method = found.get("spec_method")
        return StartupFacts(
            attention_backend=found.get("attention_backend"),
            graph_mode="eager" if found.get("graph_off") == "True" else None,
            kv_tokens=int(found["kv_tokens"]) if "kv_tokens" in found else None,
            spec_method=None if method is None else method.lower(),
        )

    def isolated_cache(self, salt: str) -> dict[str, str]:
        """Request fields that keep requests with another salt out of each other's prefix cache."""
        return {"cache_salt": hashlib.sha256(salt.encode()).hexdigest()[:32]}

    def profiler_flags(self, directory: Path) -> dict[str, Any]:
        """Refused: which operators and kernels its traces name has not been read from a run yet.

        Raises:
            EngineError: always.
        """
        raise EngineError(
            "profiles are captured from vLLM only",
            evidence=f"SGLang was to write its trace to {directory}",
            next_step="capture a variant that runs on vLLM, or read a trace with `outrider profile read`",
        )

    def profiler_request(self, *, skip: int, steps: int) -> dict[str, object]:
        """Refused like `profiler_flags`, which comes first."""
        raise EngineError(f"profiles are captured from vLLM only (asked for {steps} steps after {skip})")

    def read_metrics(self, text: str) -> EngineScrape:
        """Read one Prometheus exposition of SGLang.

        Raises:
            EngineError: the text is no exposition, or none of SGLang's.
        """
        return sglang_metrics.read(text)

    def metrics_query(self, figure: str, *, by: str, window: str) -> str | None:
        """PromQL of a figure; see `EngineAdapter.metrics_query`."""
        return sglang_metrics.query(figure, by, window)

    def metric_names(self) -> set[str]:
        """Every metric name that `metrics_query` may use."""
        return metric_names(sglang_metrics.NAMES)

    def dropped_metric_names(self) -> set[str]:
        """Names of versions before."""
        return old_names(sglang_metrics.NAMES)


# `server_args=` prints every setting once; the rest are lines of their own.
_FACTS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("attention_backend", re.compile(r"server_args=.*\battention_backend='(\w+)'")),
    ("attention_backend", re.compile(r"Attention backend not specified\. Use (\w+) backend by default")),
    ("graph_off", re.compile(r"server_args=.*\bdisable_cuda_graph=(True|False)")),
    ("spec_method", re.compile(r"server_args=.*\bspeculative_algorithm='(\w+)'")),
    ("kv_tokens", re.compile(r"\bmax_total_num_tokens=(\d+)")),
)


def sglang_python() -> str:
    """Interpreter that has SGLang: `OUTRIDER_SGLANG_PYTHON`, else the first `python3` on PATH.

    Never the one that runs Outrider: the embedded engine and SGLang pin different releases of torch.
    """
    return os.environ.get("OUTRIDER_SGLANG_PYTHON") or "python3"


def _refuse_what_is_not_known(stack: Stack, variant: str, chosen: Variant) -> None:
    spec = chosen.speculation
    if spec is None:
        return
    if spec.method not in _ALGORITHMS:
        raise StackError(
            f"method {spec.method} of variant {variant} is not served on SGLang",
            evidence=f"stack {stack.name}; on SGLang: {', '.join(_ALGORITHMS)}",
            next_step="serve this variant on vllm, or choose another method",
        )
    if spec.schedule or spec.options:
        what = "schedule" if spec.schedule else f"options.{next(iter(spec.options))}"
        raise StackError(
            f"variants.{variant}.speculation.{what} is vLLM's own",
            evidence=f"stack {stack.name}, engine sglang",
            next_step="leave it out; SGLang's settings go into the variant's flags",
        )


def _server_flags(stack: Stack, *, host: str, port: int, local: bool) -> dict[str, object]:
    target, parallel, memory = stack.target, stack.parallel, stack.memory
    flags: dict[str, object] = {"host": host, "port": port, "served-model-name": target.served_name}
    if target.revision and not local:
        flags["revision"] = target.revision
    if target.trust_remote_code:
        flags["trust-remote-code"] = True
    flags |= {"dtype": target.dtype, "context-length": target.max_model_len, "enable-metrics": True}
    for flag, size in (("tp", parallel.tensor), ("pp", parallel.pipeline), ("dp", parallel.data)):
        if size > 1:
            flags[f"{flag}-size"] = size
    if parallel.expert:
        flags["ep-size"] = parallel.tensor
    # memory.gpu_utilization is not passed on: vLLM's share holds activations and graphs too, SGLang's does not.
    if memory.kv_cache_dtype != "auto":
        flags["kv-cache-dtype"] = "fp8_e4m3" if memory.kv_cache_dtype == "fp8" else memory.kv_cache_dtype
    if memory.max_num_seqs is not None:
        flags["max-running-requests"] = memory.max_num_seqs
    return flags


def _speculation(spec: Speculation, drafter_dir: Path | None) -> dict[str, object]:
    """A chain of k drafts: k steps, one token each; the verified step holds one token more, the target's own."""
    flags: dict[str, object] = {"speculative-algorithm": _ALGORITHMS[spec.method]}
    if spec.drafter is not None:
        flags["speculative-draft-model-path"] = str(drafter_dir or spec.drafter.model)
        if drafter_dir is None and spec.drafter.revision:
            flags["speculative-draft-model-revision"] = spec.drafter.revision
    return flags | {
        "speculative-num-steps": spec.k,
        "speculative-eagle-topk": 1,
        "speculative-num-draft-tokens": spec.k + 1,
    }


def _environment(stack: Stack, variant: Variant, *, offline: bool) -> dict[str, str]:
    env = {"DO_NOT_TRACK": "1"} | ({"HF_HUB_OFFLINE": "1"} if offline else {})
    shared = {name: value for name, value in stack.env.items() if not name.startswith("VLLM_")}
    return env | stack.node.env | shared | variant.env
