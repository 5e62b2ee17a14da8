"""Against recorded truth. The demanding version (128 streams) is benchmarks/client/accuracy.py."""

from collections.abc import Callable

import pytest

from outrider.load import LoadOutcome

pytestmark = pytest.mark.quiet

Load = Callable[..., LoadOutcome]


@pytest.mark.parametrize(
    "script",
    [
        "chunks=30,gap=0.02",
        "chunks=30,gap=0.02,jitter=0.015,tokens=1:3:2:4",
        "chunks=20,gap=0.03,tokens=4,eos=1,finish=stop",
        "chunks=20,gap=0.03,field=reasoning_content",
        "chunks=20,gap=0.03,field=tool,finish=tool_calls",
        "chunks=10,gap=0.03,split=7",
    ],
)
def test_each_request_s_tpot_is_what_was_sent(load: Load, replay, script: str) -> None:
    got = load(script, arrivals={"kind": "closed", "concurrency": 4}, requests=8)
    truth = replay.truth()
    measured = [row for row in got.records if row.phase == "measured"]
    assert len(measured) == 8
    for row in measured:
        sends, tokens = truth[row.prompt_id]["sends"], truth[row.prompt_id]["tokens"]
        assert row.output_tokens == tokens[-1]
        assert row.first_chunk_tokens == tokens[0]
        assert row.chunks == len(sends)
        exact = (sends[-1] - sends[0]) / (tokens[-1] - tokens[0])
        # One late wake-up on a busy machine may shift one end of one stream; the clock's definition may not.
        assert row.tpot_s == pytest.approx(exact, rel=0.05)
    mean = sum(row.tpot_s for row in measured) / 8
    exact_mean = (
        sum(
            (t["sends"][-1] - t["sends"][0]) / (t["tokens"][-1] - t["tokens"][0])
            for t in (truth[row.prompt_id] for row in measured)
        )
        / 8
    )
    assert mean == pytest.approx(exact_mean, rel=0.02)


def test_ttft_is_the_first_token_not_the_role_event(load: Load, replay) -> None:
    got = load("chunks=5,ttft=0.15,gap=0.01,early=1", requests=6)
    truth = replay.truth()
    for row in (row for row in got.records if row.phase == "measured"):
        exact = truth[row.prompt_id]["sends"][0] - truth[row.prompt_id]["received"]
        assert exact >= 0.149
        assert row.ttft_s == pytest.approx(exact, abs=0.02)


def test_the_engine_s_time_between_chunks_is_not_taken_for_tpot(load: Load) -> None:
    """Four tokens a chunk: the error that most public tools make is a factor of four."""
    result = load("chunks=20,gap=0.02,tokens=4", requests=6).result
    assert result.icl_s.mean == pytest.approx(4 * result.tpot_s.mean, rel=0.02)
    assert result.tokens_per_chunk == 4.0
