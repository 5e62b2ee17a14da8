"""One phase of `benchmarks/utility`, against the replay server."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from outrider.errors import LoadError
from outrider.stack import Stack, find_stack

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    from tests.integration.load.conftest import Replay

pytestmark = pytest.mark.quiet

SCRIPTS = Path(__file__).resolve().parents[3] / "benchmarks" / "utility"


@pytest.fixture
def traffic(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import traffic  # noqa: PLC0415 - a script of the tree, not a package

    yield traffic
    sys.modules.pop("traffic")


def answering(script: str) -> Stack:
    """A stack whose model the replay server takes as its script."""
    stack = find_stack("smollm2-cpu")
    return stack.model_copy(update={"target": stack.target.model_copy(update={"served_name": script})})


def test_a_phase_gives_the_time_per_token_of_every_prompt(traffic: ModuleType, replay: Replay) -> None:
    stack = answering("chunks=10,gap=0.02")
    row = traffic.run_phase(stack, replay.url, traffic.Phase("chat", 2), traffic.Pace(1.0, 64, 4), seed=0)

    assert (row["phase"], row["users"]) == ("chat@2", 2)
    assert row["tpot_s"] == pytest.approx(0.02, rel=0.2)
    assert sum(count for count, _ in row["tpot_by_prompt"].values()) == row["requests"] > 4
    assert all(mean == pytest.approx(0.02, rel=0.5) for _, mean in row["tpot_by_prompt"].values())


def test_a_phase_without_an_answer_says_what_came_instead(traffic: ModuleType, replay: Replay) -> None:
    with pytest.raises(LoadError, match=r"phase chat@2 has no figure: \d+ requests"):
        traffic.run_phase(
            answering("status=500"), replay.url, traffic.Phase("chat", 2), traffic.Pace(0.5, 64, 4), seed=0
        )
