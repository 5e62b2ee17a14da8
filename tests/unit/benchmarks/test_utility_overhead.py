"""What `benchmarks/utility/overhead.py` compares and when it says that the promise is broken."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from outrider.errors import StackError
from outrider.stack import find_stack

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

SCRIPTS = Path(__file__).resolve().parents[3] / "benchmarks" / "utility"


@pytest.fixture(scope="module")
def overhead() -> Iterator[ModuleType]:
    """The script, which imports its neighbour as scripts do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(SCRIPTS))
        import overhead  # noqa: PLC0415

        yield overhead
        for name in ("overhead", "traffic"):
            sys.modules.pop(name)


def test_both_engines_run_one_k_and_only_one_has_the_controller(overhead: ModuleType) -> None:
    stack = overhead.pair_of_variants(find_stack("smollm2-cpu"), "eagle3-auto")
    plain, held = stack.variant("plain"), stack.variant("held")
    assert plain.speculation.schedule == ((1, stack.memory.max_num_seqs, plain.speculation.k),)
    assert (plain.speculation.auto, held.speculation.auto) == (False, True)
    said = json.loads(held.env["OUTRIDER_UTILITY"])
    assert said["hold"] is True
    assert said["prior"] == [list(plain.speculation.schedule[0])]
    with pytest.raises(StackError, match="has no `auto: true`"):
        overhead.pair_of_variants(find_stack("smollm2-cpu"), "eagle3")


def test_only_prompts_that_both_answered_are_compared(overhead: ModuleType) -> None:
    plain = {"a": (1, 0.010), "b": (1, 0.020), "c": (1, 9.0)}
    assert overhead.slower(plain, {"a": (1, 0.011), "b": (1, 0.022), "d": (1, 5.0)}) == pytest.approx(0.1)


def test_engines_side_by_side_are_loaded_there_and_back_and_in_turn_never_both(overhead: ModuleType) -> None:
    beside = list(overhead.visits(("plain", "held"), [1, 8], 2, in_turn=False))
    assert beside[:4] == [(1, 0, "held"), (1, 0, "plain"), (1, 0, "plain"), (1, 0, "held")]
    assert [variant for _, pair, variant in beside if pair == 1][:4] == ["plain", "held", "held", "plain"]
    in_turn = list(overhead.visits(("plain", "held"), [1, 8], 2, in_turn=True))
    assert [variant for *_, variant in in_turn] == ["plain"] * 4 + ["held"] * 4
    for visits in (beside, in_turn):
        places = [visit[:2] for visit in visits if visit[2] == "plain"]
        assert sorted(places) == sorted(visit[:2] for visit in visits if visit[2] == "held")
        assert set(places) == {(1, 0), (1, 1), (8, 0), (8, 1)}


@pytest.mark.parametrize(
    ("medians", "spent_s", "kept"),
    [
        ((0.001, 0.003, 0.002, 0.002), 0.1, True),
        ((-0.03, 0.03, -0.02, 0.03), 0.1, True),  # engines differ by more than the promise: nothing speaks against it
        ((0.012, 0.011, 0.013, 0.012), 0.1, False),
        ((-0.03, 0.03, -0.02, 0.03), 0.6, False),  # what the controller counts itself is not blurred
    ],
)
def test_the_promise_is_broken_by_what_stands_out_of_the_noise(
    overhead: ModuleType, medians: tuple[float, ...], spent_s: float, *, kept: bool
) -> None:
    found = [{8: overhead.Found([one - 0.05, one, one + 0.05], spent_s, 1000, 100.0)} for one in medians]
    assert overhead.report(found, [8]) is kept
