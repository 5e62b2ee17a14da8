"""A fault inside the utility scheduler, on the real CPU engine: it costs nothing but the choice of k."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest
from tests.integration.vllm_ext.served import COPY, answers, launch, metrics, side_by_side

from outrider.engine.vllm_utility import FLAGS
from outrider.runtime.local import LocalRuntime

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from outrider.engine.base import Launch
    from outrider.runtime.running import LocalRunning

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(900)]

VARIANTS = ("ngram-auto", "eagle3-auto")
DRAFTS, DRAFT_TOKENS = "vllm:spec_decode_num_drafts_total", "vllm:spec_decode_num_draft_tokens_total"
FAULTY = """
from outrider.vllm_ext.scheduler import UtilityScheduler


class FaultyScheduler:
    def __new__(cls, **kwargs):
        scheduler = UtilityScheduler(**kwargs)
        observe, seen = scheduler.utility.controller.observe, []

        def explode(*step):
            seen.append(step)
            if len(seen) > 20:
                scheduler.dynamic_sd_lookup[:] = [0] * len(scheduler.dynamic_sd_lookup)
                raise ZeroDivisionError("injected")
            return observe(*step)

        scheduler.utility.controller.observe = explode
        return scheduler
"""


@pytest.fixture(scope="module")
def engines(smollm2_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, LocalRunning]]:
    directory = tmp_path_factory.mktemp("faulty")
    (directory / "faulty.py").write_text(FAULTY)

    def faulty(variant: str) -> Launch:
        made = launch(variant)
        argv = tuple("faulty.FaultyScheduler" if word == FLAGS[1] else word for word in made.argv)
        return dataclasses.replace(made, argv=argv, env=made.env | {"PYTHONPATH": f"{directory}:{_sources()}"})

    with side_by_side(LocalRuntime(directory / "state"), {name: faulty(name) for name in VARIANTS}) as served:
        yield served


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_fault_inside_leaves_the_engine_with_its_static_schedule(
    engines: dict[str, LocalRunning], variant: str
) -> None:
    engine = engines[variant]
    first = answers(engine, [COPY], 1)
    faulted = metrics(engine)
    assert answers(engine, [COPY], 1) == first
    later = metrics(engine)
    log = list(engine.log_lines())

    assert faulted["outrider_utility_fault",] == 1
    drafts, drafted = (later[name,] - faulted[name,] for name in (DRAFTS, DRAFT_TOKENS))
    assert drafts > 0
    assert 2 < drafted / drafts <= 3, "the static k is in force again"
    assert sum("utility: off, the static schedule is in force: ZeroDivisionError: injected" in x for x in log) == 1


def _sources() -> str:
    from outrider import vllm_ext  # noqa: PLC0415 - for its place only

    return str(next(iter(vllm_ext.__path__)).removesuffix("/outrider/vllm_ext"))
