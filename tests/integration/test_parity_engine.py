"""Parity on the real engine: n-gram speculation against plain decoding."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import httpx
import pytest

from outrider.campaign.engines import Engines
from outrider.campaign.parity import ParityPlan, collect_answers, compare_answers
from outrider.engine import adapter
from outrider.runtime.local import LocalRuntime
from outrider.stack import find_stack

if TYPE_CHECKING:
    from pathlib import Path

    from outrider.campaign.parity import Answers
    from outrider.engine.base import EngineScrape

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(900)]

PLAN = ParityPlan(prompts_each=4, max_tokens=64, task_max_tokens=24, concurrency=4, margin=0.1)


@pytest.fixture(scope="module")
def sides(smollm2_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Answers, EngineScrape]]:
    """Answers and engine counters of both variants."""
    stack = find_stack("smollm2-cpu")
    found: dict[str, tuple[Answers, EngineScrape]] = {}
    with Engines(stack, LocalRuntime(tmp_path_factory.mktemp("state")), side_by_side=True) as engines:
        assert engines.start(["baseline", "ngram"]) == {}
        for variant in ("baseline", "ngram"):
            served = engines.get(variant)
            answers = asyncio.run(
                collect_answers(served.running.url, stack.target.served_name, PLAN, again=variant == "baseline")
            )
            metrics = httpx.get(f"{served.running.url}{served.launch.metrics_path}", trust_env=False).text
            found[variant] = (answers, adapter(stack.engine.name).read_metrics(metrics))
    return found


def test_speculation_was_really_at_work(sides: dict[str, tuple[Answers, EngineScrape]]) -> None:
    spec = sides["ngram"][1].spec
    assert spec is not None
    assert spec.accepted_tokens > 100
    assert sides["baseline"][1].spec is None


def test_the_engine_returns_token_ids(sides: dict[str, tuple[Answers, EngineScrape]]) -> None:
    assert all(answers.has_token_ids for answers, _ in sides.values())


def test_ngram_leaves_the_answers_quality_alone(sides: dict[str, tuple[Answers, EngineScrape]]) -> None:
    """Byte identity is not expected in BF16: agreement is judged beside what baseline has with itself."""
    result = compare_answers(sides["baseline"][0], sides["ngram"][0], "smollm2-135m", PLAN, names=("baseline", "ngram"))
    assert result.failures == []
    assert result.agreement.unit == "tokens"
    assert result.agreement.share.mid > 0.5
    assert result.accuracy.tasks >= 100
    assert 0.3 < result.accuracy.a < 0.95, "a task set that is too easy or too hard shows nothing"
    assert result.verdict == "equivalent", result.summary
