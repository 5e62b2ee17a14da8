"""How the target is served while a head is trained: plainly, for extraction, and with the new head.

Extraction uses vLLM's speculative method `extract_hidden_states` (0.18 and later), whose "drafter" only stores the
named layers' outputs, and a KV connector that writes them to one file a request.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from outrider.engine import adapter
from outrider.engine.vllm import engine_python

if TYPE_CHECKING:
    from collections.abc import Mapping

    from outrider.engine.base import Launch
    from outrider.stack.schema import Stack

HOST = "127.0.0.1"
# The engine's own connector needs CUDA streams and pinned memory; this one does the same without.
CPU_CONNECTOR = "CpuHiddenStatesConnector"
_SOURCE_ROOT = Path(__file__).resolve().parents[2]


def plain_launch(
    stack: Stack, model_dir: Path | None, port: int, env: Mapping[str, str], *, servers: int = 1
) -> Launch:
    """Serve the target alone, under its path (or repository) as first name.

    speculators loads its tokenizer by the served name, so that name must be something that can be loaded. A small
    target on a GPU outruns one API server process, so `servers` of them can share the requests there.
    """
    launch = adapter(stack.engine.name).launch(
        stack, "baseline", host=HOST, port=port, model_dir=model_dir, drafter_dir=None
    )
    argv = _by_interpreter(list(launch.argv))
    at = argv.index("--served-model-name")
    argv.insert(at + 1, str(model_dir) if model_dir else stack.target.model)
    if stack.engine.build == "cuda" and servers > 1:
        argv += ["--api-server-count", str(servers)]
    return dataclasses.replace(launch, argv=tuple(argv), env={**launch.env, **env})


def extraction_launch(
    stack: Stack,
    model_dir: Path | None,
    port: int,
    env: Mapping[str, str],
    *,
    layers: tuple[int, ...],
    storage: Path,
    text_only: bool = False,
) -> Launch:
    """Serve the target so that each request's prompt leaves the named layers' hidden states in `storage`."""
    launch = plain_launch(stack, model_dir, port, env)
    connector: dict[str, object] = {
        "kv_connector": "ExampleHiddenStatesConnector",
        "kv_role": "kv_producer",
        "kv_connector_extra_config": {"shared_storage_path": str(storage)},
    }
    extra = dict(launch.env)
    if stack.engine.build == "cpu":
        connector |= {
            "kv_connector": CPU_CONNECTOR,
            "kv_connector_module_path": "outrider.train.cpu_connector",
        }
        extra["PYTHONPATH"] = ":".join(filter(None, (extra.get("PYTHONPATH", ""), str(_SOURCE_ROOT))))
    speculation = {
        "method": "extract_hidden_states",
        "num_speculative_tokens": 1,
        "draft_model_config": {"hf_config": {"eagle_aux_hidden_state_layer_ids": list(layers)}},
    }
    argv = [
        *launch.argv,
        "--speculative-config",
        json.dumps(speculation, separators=(",", ":")),
        "--kv-transfer-config",
        json.dumps(connector, separators=(",", ":")),
        # A cached prefix would leave no hidden states behind.
        "--no-enable-prefix-caching",
    ]
    if text_only and "--language-model-only" not in argv:
        argv.append("--language-model-only")
    return dataclasses.replace(launch, argv=tuple(argv), env=extra)


def head_launch(
    stack: Stack, model_dir: Path | None, port: int, env: Mapping[str, str], *, head: Path, k: int
) -> Launch:
    """Serve the target with a head as its drafter."""
    launch = plain_launch(stack, model_dir, port, env)
    config = {"method": "eagle3", "model": str(head), "num_speculative_tokens": k}
    argv = [*launch.argv, "--speculative-config", json.dumps(config, separators=(",", ":"))]
    return dataclasses.replace(launch, argv=tuple(argv))


def _by_interpreter(argv: list[str]) -> list[str]:
    """`vllm serve` as a module of our interpreter, if there is no console script."""
    if argv[:2] == ["vllm", "serve"] and shutil.which("vllm") is None:
        return [engine_python(), "-m", "vllm.entrypoints.cli.main", *argv[1:]]
    return argv
