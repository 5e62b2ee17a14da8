"""Streams of the real engine, held against the counters that it kept of them."""

import json
from pathlib import Path

import pytest

from outrider.load.outcome import Outcome
from outrider.load.stream import StreamReader

STREAMS = Path(__file__).parents[2] / "fixtures" / "streams"
METHODS = sorted(path.stem for path in STREAMS.glob("*.json"))


@pytest.fixture(params=METHODS)
def recorded(request: pytest.FixtureRequest) -> tuple[StreamReader, dict]:
    recording = json.loads((STREAMS / f"{request.param}.json").read_text())
    reader = StreamReader()
    for at, text in recording["pieces"]:
        reader.feed(text.encode(), at)
    reader.close()
    return reader, recording


def test_both_methods_are_recorded() -> None:
    assert {"baseline", "ngram"} <= set(METHODS)


def test_tokens_are_those_that_the_engine_counted(recorded: tuple[StreamReader, dict]) -> None:
    reader, recording = recorded
    assert reader.outcome() is Outcome.LENGTH
    assert reader.clock.source == "continuous_usage"
    assert reader.clock.total_tokens == recording["counters"]["generation_tokens"]
    assert reader.prompt_tokens == recording["counters"]["prompt_tokens"]


def test_tpot_is_the_engine_s_within_two_percent(recorded: tuple[StreamReader, dict]) -> None:
    reader, recording = recorded
    assert reader.clock.tpot_s == pytest.approx(recording["counters"]["tpot_mean_s"], rel=0.02)


def test_chunks_carry_several_tokens_only_under_speculation(recorded: tuple[StreamReader, dict]) -> None:
    reader, recording = recorded
    per_chunk = reader.clock.total_tokens / reader.clock.chunks
    if recording["counters"]["accepted_tokens"]:
        assert per_chunk > 1.5
        icl = sum(reader.clock.gaps_s) / len(reader.clock.gaps_s)
        assert icl > 1.5 * reader.clock.tpot_s, "with speculation the time between chunks is not TPOT"
    else:
        assert per_chunk == 1
