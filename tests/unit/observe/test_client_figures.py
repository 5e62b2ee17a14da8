"""What the load client's exporter counts beside latencies."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from outrider.load.client import Meter
from outrider.load.exporter import Exporter
from outrider.load.outcome import Outcome
from outrider.load.plan import LoadPlan


@pytest.mark.parametrize(
    ("text", "looping"),
    [
        ("the same words again " * 60, 1.0),
        (" ".join(f"word{n} other{n}" for n in range(120)), 0.0),
        ("short", 0.0),
    ],
)
def test_outputs_that_loop_are_counted(text: str, looping: float) -> None:
    plan = LoadPlan(
        url="http://h", model="m", workload="chat", arrivals={"kind": "closed", "concurrency": 1}, requests=1
    )
    exporter = Exporter(plan, Meter())
    clock = SimpleNamespace(tpot_s=0.02, gaps_s=())
    ended = SimpleNamespace(
        outcome=Outcome.LENGTH, reader=SimpleNamespace(clock=clock, text=text), ttft_s=0.1, e2e_s=1.0
    )
    exporter.observe(ended)  # type: ignore[arg-type]
    found = {s.name: s.value for f in exporter.registry.collect() for s in f.samples if "le" not in s.labels}
    assert found["outrider_client_repetitive_requests_total"] == looping
    assert found["outrider_client_requests_total"] == 1
