"""How an expert budget reaches the engine, and where it is refused before anything starts."""

from __future__ import annotations

import hashlib
import importlib
import json
import tomllib

import pytest

from outrider.engine import adapter
from outrider.engine.vllm_workers import EXTENSION
from outrider.errors import StackError
from outrider.stack import Stack, find_stack, stack_from_text
from outrider.stack.loader import stacks_dir
from outrider.vllm_ext.expert_budget.settings import PLUGIN, Settings, read_settings

VLLM = adapter("vllm")
FLAGSHIP = "kimi-k2.5-rtx6000x8"


def flagship(budget: str, *, lossy: bool = True) -> Stack:
    text = (stacks_dir() / f"{FLAGSHIP}.yaml").read_text(encoding="utf-8")
    text = text.replace("  baseline:\n", f"  baseline:\n    expert_budget: {budget}\n", 1)
    return stack_from_text(text).model_copy(update={"allow_lossy": lossy})


def launched(stack: Stack, variant: str = "baseline") -> tuple[list[str], dict[str, str]]:
    made = VLLM.launch(stack, variant, host="127.0.0.1", port=8000, model_dir=None, drafter_dir=None)
    return list(made.argv), dict(made.env)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("{experts: 64}", Settings(experts=64)),
        ("{share: 0.6, mode: drop}", Settings(share=0.6, mode="drop")),
    ],
)
def test_settings_arrive_as_they_were_written(written: str, read: Settings) -> None:
    argv, env = launched(flagship(written))
    assert read_settings(env) == read
    assert argv[argv.index("--worker-extension-cls") + 1] == EXTENSION


def test_a_variant_without_a_budget_has_nothing_of_it() -> None:
    argv, env = launched(flagship("{experts: 64}"), "eagle3")
    assert "--worker-extension-cls" not in argv
    assert read_settings(env) is None


def test_a_budget_is_lossy_and_needs_an_opt_in() -> None:
    with pytest.raises(StackError, match=r"expert_budget routes decoded tokens through at most 64 experts"):
        launched(flagship("{experts: 64}", lossy=False))


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("{experts: 0}", "greater than or equal to 1"),
        ("{share: 1.5}", "less than or equal to 1"),
        ("{}", "a number"),
        ("{experts: 64, share: 0.5}", "a number"),
        ("{experts: 64, mode: skip}", "reroute"),
        ("{expert: 64}", "experts"),
    ],
)
def test_a_budget_that_makes_no_sense_is_refused_with_its_line(written: str, says: str) -> None:
    with pytest.raises(StackError, match=says):
        flagship(written)


def test_a_budget_on_another_engine_is_refused() -> None:
    with pytest.raises(StackError, match="plugin for vllm"):
        flagship("{experts: 64}\n    engine: {name: sglang, version: 0.5.6, build: cuda}")


def test_stacks_without_a_budget_keep_the_digest_of_their_cells() -> None:
    stack = find_stack(FLAGSHIP)
    assert flagship("{experts: 64}").digest() != flagship("{experts: 65}").digest()
    data = stack.model_dump(mode="json", by_alias=True, exclude={"campaign", "title", "training"})
    assert all(variant.pop("expert_budget") is None for variant in data["variants"].values())
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    assert stack.digest() == hashlib.sha256(text.encode()).hexdigest()[:16]


def test_the_wheel_announces_the_plugin_that_the_settings_name() -> None:
    pyproject = tomllib.loads((stacks_dir().parent / "pyproject.toml").read_text(encoding="utf-8"))
    module, function = pyproject["project"]["entry-points"]["vllm.general_plugins"][PLUGIN].split(":")
    assert callable(getattr(importlib.import_module(module), function))
