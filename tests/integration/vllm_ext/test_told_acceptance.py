"""Synthetic acceptance that follows the traffic, on an engine that serves: the V2 runner with interpreted kernels."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.integration.vllm_ext.served import answers, metrics
from tests.interpreted_triton import environment

from outrider.engine import adapter
from outrider.errors import LoadError
from outrider.model_store import locate
from outrider.runtime import ports
from outrider.runtime.local import LocalRuntime
from outrider.stack import find_stack

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    from outrider.runtime.running import LocalRunning

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(900)]

SCRIPTS = Path(__file__).resolve().parents[3] / "benchmarks" / "utility"
RATES = {"rejection_sample_method": "synthetic", "synthetic_acceptance_rates": [0.5, 0.5]}


@pytest.fixture(scope="module")
def scripts() -> Iterator[tuple[ModuleType, ModuleType]]:
    """`phases` and `traffic`, which are scripts of the tree."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(SCRIPTS))
        import phases  # noqa: PLC0415
        import traffic  # noqa: PLC0415

        yield phases, traffic
        for name in ("phases", "traffic", "targets"):
            sys.modules.pop(name)


@pytest.fixture(scope="module")
def engine(
    smollm2_dir: Path, scripts: tuple[ModuleType, ModuleType], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalRunning]:
    """A static k = 2 beside a variant that chooses, as the benchmark starts it."""
    stack = find_stack("smollm2-cpu")
    auto = stack.variant("eagle3-auto")
    assert auto.speculation is not None
    spec = auto.speculation.model_copy(update={"options": RATES})
    variants = {"baseline": stack.variant("baseline"), "auto": auto.model_copy(update={"speculation": spec})}
    stack = stack.model_copy(update={"allow_lossy": True, "variants": variants})
    compared = scripts[0].with_arms(stack, "auto", [2], told=True)
    made = adapter("vllm").launch(
        compared, "k2", host="127.0.0.1", port=ports.free_port(7600), model_dir=smollm2_dir,
        drafter_dir=locate(stack, "auto").drafter_dir,
    )  # fmt: skip
    # Kernels that are interpreted cannot be compiled into graphs.
    argv = (*(w for w in made.argv if w != "--no-enforce-eager"), "--enforce-eager")
    env = {**made.env, **environment(), "VLLM_USE_V2_MODEL_RUNNER": "1"}
    runtime = LocalRuntime(tmp_path_factory.mktemp("state"), fixed_s=400)
    with runtime.start("smollm2-cpu/k2", dataclasses.replace(made, argv=argv, env=env)) as running:
        yield running


def accepted(engine: LocalRunning) -> tuple[float, float]:
    """Accepted drafts and drafted tokens of one short answer."""
    names = ("vllm:spec_decode_num_accepted_tokens_total", "vllm:spec_decode_num_draft_tokens_total")

    def totals() -> list[float]:
        now = metrics(engine)
        return [sum(value for key, value in now.items() if key[0] == name) for name in names]

    before = totals()
    answers(engine, ["Why is the sky blue?"], 1, max_tokens=16)
    took, drafted = (b - a for a, b in zip(before, totals(), strict=True))
    return took, drafted


def test_what_is_accepted_is_what_the_phase_says(engine: LocalRunning, scripts: tuple[ModuleType, ModuleType]) -> None:
    traffic = scripts[1]
    traffic.accept(engine.url, traffic.Phase.parse("chat@1~1/1/1"), 2)
    took, drafted = accepted(engine)
    assert drafted >= 8
    # The last step may draft beyond the answer's end.
    assert took >= drafted - 2

    traffic.accept(engine.url, traffic.Phase.parse("chat@1~0/0"), 2)
    took, drafted = accepted(engine)
    assert (took, drafted >= 28) == (0, True)

    # Of two positions, the second only where the first was: rates are counted from the first.
    traffic.accept(engine.url, traffic.Phase.parse("chat@1~1/0"), 2)
    took, drafted = accepted(engine)
    assert took == pytest.approx(drafted / 2, abs=1)


def test_an_engine_that_cannot_be_told_says_why(engine: LocalRunning, scripts: tuple[ModuleType, ModuleType]) -> None:
    traffic = scripts[1]
    with pytest.raises(LoadError, match=r"does not accept what phase chat@1~0.5 says"):
        traffic.accept(engine.url, traffic.Phase.parse("chat@1~0.5"), 1)
    assert accepted(engine)[1] > 0, "it serves on"
