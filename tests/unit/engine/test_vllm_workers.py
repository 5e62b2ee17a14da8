"""What Outrider puts into the engine's workers, and for which variants."""

from __future__ import annotations

import importlib
import subprocess
import sys
import tomllib

import pytest

from outrider.engine import adapter
from outrider.engine.vllm_workers import ASKABLE, EXTENSION
from outrider.stack import find_stack, stack_from_text
from outrider.stack.loader import stacks_dir
from outrider.vllm_ext.deferred_pass.plugin import PLUGIN, STEPS, VARIABLE, DeferredPassError, register

EMBEDDED = "smollm2-cpu"


def launched(variant: str, **speculation: object) -> tuple[list[str], dict[str, str]]:
    stack = find_stack(EMBEDDED)
    if speculation:
        chosen = stack.variant(variant)
        assert chosen.speculation is not None
        changed = chosen.model_copy(update={"speculation": chosen.speculation.model_copy(update=speculation)})
        stack = stack.model_copy(update={"variants": {variant: changed}})
    made = adapter("vllm").launch(stack, variant, host="127.0.0.1", port=8000, model_dir=None, drafter_dir=None)
    return list(made.argv), dict(made.env)


@pytest.mark.parametrize(
    ("variant", "speculation", "put_off"),
    [
        ("baseline", {}, False),
        ("eagle3", {}, False),
        ("eagle3-auto", {}, True),
        ("eagle3", {"schedule": ((1, 8, 3), (9, 32, 0))}, True),
        ("eagle3", {"schedule": ((1, 8, 3), (9, 32, 1))}, False),
        # Nothing has to be kept in step where proposals are looked up.
        ("ngram-auto", {}, False),
    ],
)
def test_passes_are_put_off_where_k_may_be_0(variant: str, speculation: dict[str, object], put_off: bool) -> None:
    argv, env = launched(variant, **speculation)
    assert env.get(VARIABLE) == (str(STEPS["cpu"]) if put_off else None)
    assert ("--worker-extension-cls" in argv) == put_off
    assert not put_off or argv[argv.index("--worker-extension-cls") + 1] == EXTENSION


def test_workers_can_be_asked_where_a_variant_opens_the_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTRIDER_ENGINE_PYTHON", "/engine/python")
    stack = find_stack(EMBEDDED)
    opened = {"baseline": stack.variant("baseline").model_copy(update={"env": ASKABLE})}
    stack = stack.model_copy(update={"variants": opened})
    made = adapter("vllm").launch(stack, "baseline", host="127.0.0.1", port=80, model_dir=None, drafter_dir=None)
    assert made.argv[made.argv.index("--worker-extension-cls") + 1] == EXTENSION
    assert made.env["PYTHONPATH"].endswith("/src")


def test_a_variant_can_say_otherwise() -> None:
    text = (stacks_dir() / f"{EMBEDDED}.yaml").read_text(encoding="utf-8")
    stack = stack_from_text(text.replace("  eagle3-auto:\n", f'  eagle3-auto:\n    env: {{{VARIABLE}: "4"}}\n', 1))
    made = adapter("vllm").launch(stack, "eagle3-auto", host="127.0.0.1", port=80, model_dir=None, drafter_dir=None)
    assert made.env[VARIABLE] == "4"


def test_the_wheel_announces_the_plugin() -> None:
    pyproject = tomllib.loads((stacks_dir().parent / "pyproject.toml").read_text(encoding="utf-8"))
    module, function = pyproject["project"]["entry-points"]["vllm.general_plugins"][PLUGIN].split(":")
    assert getattr(importlib.import_module(module), function) is register


@pytest.mark.parametrize("text", ["0", "-1", "many", "1.5"])
def test_a_number_of_steps_that_makes_no_sense_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, text)
    with pytest.raises(DeferredPassError, match="a whole number of steps from 1"):
        register()


def test_importing_what_workers_load_needs_neither_torch_nor_the_engine() -> None:
    module, _, name = EXTENSION.rpartition(".")
    code = f"import sys, {module}; {module}.{name}; print(sorted({{'torch', 'vllm'}} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == "[]"
