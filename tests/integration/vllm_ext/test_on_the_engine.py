"""The utility scheduler on the real CPU engine: it follows the traffic and changes no answer."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from tests.integration.vllm_ext.served import CHAT, COPY, answers, launch, metrics, side_by_side

from outrider.runtime.local import LocalRuntime

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from outrider.runtime.running import LocalRunning

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.quiet, pytest.mark.timeout(1500)]


def workload(engine: LocalRunning) -> list[str]:
    """Copying by one user, then chat of eight."""
    return [*answers(engine, [COPY] * 2, 1), *answers(engine, CHAT, 8)]


@pytest.fixture(scope="module")
def expected(smollm2_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What the static variants answer; nobody times them."""
    launches = {name: launch(name) for name in ("baseline", "eagle3")}
    with (
        side_by_side(LocalRuntime(tmp_path_factory.mktemp("state")), launches) as engines,
        ThreadPoolExecutor() as pool,
    ):
        return dict(zip(engines, pool.map(workload, engines.values()), strict=True))


@pytest.fixture(scope="module")
def autos(
    expected: dict[str, list[str]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, LocalRunning]]:
    """Both variants that choose k, started once the static ones have gone; one is idle while the other is asked.

    Their prior is wrong for copying, so that leaving it is the controller's doing.
    """
    launches = {name: launch(name, prior=[[1, 32, 0]], ks=[0, 1, 2, 3]) for name in ("ngram-auto", "eagle3-auto")}
    with side_by_side(LocalRuntime(tmp_path_factory.mktemp("state")), launches) as engines:
        yield engines


def test_it_follows_a_change_of_traffic_and_changes_no_answer(
    expected: dict[str, list[str]], autos: dict[str, LocalRunning]
) -> None:
    engine, same = autos["ngram-auto"], expected["baseline"]
    assert answers(engine, [COPY] * 2, 1) == same[:2]
    alone = metrics(engine)
    assert answers(engine, CHAT, 8) == same[2:]
    together = metrics(engine)
    log = list(engine.log_lines())

    assert alone["outrider_utility_k", "batch=1"] > 0
    assert alone["outrider_utility_ratio", "batch=1", "k=3"] > 1.1
    assert alone["outrider_utility_switches_total", "batch=1"] >= 1
    assert any("utility: batch 1: k 0 -> " in line and "tokens a step" in line for line in log)
    assert together["outrider_utility_fault",] == 0
    assert any(key[0] == "outrider_utility_k" and key[1] in {"batch=7-8", "batch=5-6"} for key in together)
    assert together["outrider_utility_steps_total", "kind=clean"] > alone["outrider_utility_steps_total", "kind=clean"]
    assert not any("Traceback" in line for line in log)


def test_with_a_drafter_k_follows_the_traffic_up_and_down_and_greedy_answers_are_the_static_variants(
    expected: dict[str, list[str]], autos: dict[str, LocalRunning]
) -> None:
    engine, same = autos["eagle3-auto"], expected["eagle3"]
    assert answers(engine, [COPY] * 2, 1) == same[:2]
    copied = metrics(engine)
    # What is sampled at temperature 2, the most that the engine takes, hardly anybody could draft.
    for _ in range(5):  # how many steps it takes depends on how long it had been right
        answers(engine, CHAT, 1, temperature=2.0)
        sampled = metrics(engine)
        if sampled["outrider_utility_k", "batch=1"] < copied["outrider_utility_k", "batch=1"]:
            break
    assert answers(engine, CHAT, 8) == same[2:]
    together = metrics(engine)
    log = list(engine.log_lines())

    force, changes = ("outrider_utility_k", "batch=1"), ("outrider_utility_switches_total", "batch=1")
    assert copied[force] > 0, "from the prior's 0"
    assert copied["outrider_utility_ratio", "batch=1", f"k={copied[force]:.0f}"] > 1.1
    assert copied["outrider_utility_tokens_per_step", "k=3"] > 1.5
    assert sampled[force] < copied[force], "in the same band, after the traffic changed"
    assert sampled[changes] > copied[changes] >= 1
    # Not all that was learnt of copying has faded when k falls, and what is drafted no more is not learnt anew.
    tokens = ("outrider_utility_tokens_per_step", "k=1")
    assert sampled[tokens] < copied[tokens] - 0.1
    assert any("utility: batch 1: k 0 -> " in line for line in log)
    assert any(f"utility: batch 1: k {copied[force]:.0f} -> " in line for line in log)
    assert together["outrider_utility_exported",] == 1
    assert together["outrider_utility_fault",] == 0
    assert any(key[0] == "outrider_utility_k" and key[1] in {"batch=7-8", "batch=5-6"} for key in together)
    assert not any("Traceback" in line for line in log)
