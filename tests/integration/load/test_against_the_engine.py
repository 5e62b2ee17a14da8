"""The client against the real engine's own counters and histogram, with and without speculation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from outrider.campaign.engines import Engines
from outrider.load import LoadPlan, run_load
from outrider.runtime.local import LocalRuntime
from outrider.stack import find_stack

if TYPE_CHECKING:
    from outrider.load import LoadResult

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.quiet, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def measured(smollm2_dir, tmp_path_factory: pytest.TempPathFactory) -> dict[str, LoadResult]:
    """One closed-loop result of each variant, on text that repeats."""
    stack = find_stack("smollm2-cpu")
    found: dict[str, LoadResult] = {}
    with Engines(stack, LocalRuntime(tmp_path_factory.mktemp("state")), side_by_side=True) as engines:
        assert engines.start(["baseline", "ngram"]) == {}
        for variant in ("baseline", "ngram"):
            served = engines.get(variant)
            plan = LoadPlan(
                url=served.running.url,
                model=stack.target.served_name,
                workload="edit",
                arrivals={"kind": "closed", "concurrency": 2},
                requests=12,
                max_tokens=64,
                engine=stack.engine.name,
                speculates=variant != "baseline",
            )
            found[variant] = run_load(plan).result
    return found


VARIANTS = pytest.mark.parametrize("variant", ["baseline", "ngram"])


@VARIANTS
def test_mean_tpot_is_the_engine_s_within_two_percent(measured: dict[str, LoadResult], variant: str) -> None:
    engine = measured[variant].engine
    assert engine.tpot_count >= 12
    assert engine.client_tpot_mean_s == pytest.approx(engine.tpot_mean_s, rel=0.02)


@VARIANTS
def test_the_client_saw_the_tokens_that_the_engine_made(measured: dict[str, LoadResult], variant: str) -> None:
    result = measured[variant]
    assert result.token_source == "continuous_usage"
    assert result.tokens_in_window == pytest.approx(result.engine.generation_tokens, abs=16)


def test_only_speculation_makes_several_tokens_a_step_and_a_chunk(measured: dict[str, LoadResult]) -> None:
    base, ngram = measured["baseline"], measured["ngram"]
    assert (base.engine.tokens_per_step, base.engine.al) == (1.0, None)
    assert base.tokens_per_chunk == pytest.approx(1.0, abs=0.02)  # a server that waits for a core joins two
    assert ngram.engine.tokens_per_step > 1.2
    assert ngram.tokens_per_chunk > 1.2
    assert ngram.engine.al >= ngram.engine.tokens_per_step
    assert all(result.status != "invalid" for result in measured.values())
