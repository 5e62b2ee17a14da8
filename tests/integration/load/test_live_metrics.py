"""The exporter answers while the test runs, with the labels and figures that it promises."""

import itertools
import json
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from outrider.errors import LoadError
from outrider.load import LoadOutcome, Progress
from outrider.load.exporter import LABELS, TPOT_BOUNDS

pytestmark = [pytest.mark.quiet, pytest.mark.usefixtures("own_dirs")]

Load = Callable[..., LoadOutcome]
NAMED = {"stack": "s", "variant": "ngram", "workload": "chat"}


def test_metrics_are_there_while_it_runs(load: Load, free_port: int) -> None:
    scrapes: list[str] = []

    def scrape(_progress: Progress) -> None:
        scrapes.append(httpx.get(f"http://127.0.0.1:{free_port}/metrics").raise_for_status().text)

    got = load(
        "chunks=10,gap=0.02,tokens=2",
        arrivals={"kind": "closed", "concurrency": 3},
        requests=40,
        metrics_port=free_port,
        labels=NAMED,
        on_progress=scrape,
    )
    assert got.result.outcomes == {"length": 40}
    families = {f.name: f for f in text_string_to_metric_families(scrapes[-1])}
    assert set(families) >= {
        *("outrider_client_ttft_seconds", "outrider_client_tpot_seconds", "outrider_client_icl_seconds"),
        *("outrider_client_e2e_seconds", "outrider_client_requests", "outrider_client_failed_requests"),
        *("outrider_client_output_tokens", "outrider_client_in_flight", "outrider_client_event_loop_lag_seconds"),
    }
    for family in families.values():
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == set(LABELS)
            assert sample.labels.items() >= (NAMED | {"concurrency": "3"}).items()
    value = {s.name: s.value for f in families.values() for s in f.samples if "le" not in s.labels}
    assert value["outrider_client_in_flight"] == 3
    assert value["outrider_client_requests_total"] >= 3
    mean = value["outrider_client_tpot_seconds_sum"] / value["outrider_client_tpot_seconds_count"]
    assert mean == pytest.approx(0.01, rel=0.3)
    assert value["outrider_client_output_tokens_total"] > 0


def test_prometheus_is_told_of_any_free_port_while_it_runs_and_not_after(load: Load, own_dirs: Path) -> None:
    targets, seen = own_dirs / "state" / "targets", []

    def look(_progress: Progress) -> None:
        for file in targets.glob("client-*.json"):
            [group] = json.loads(file.read_text())
            text = (
                httpx.get(f"http://{group['targets'][0]}{group['labels']['__metrics_path__']}").raise_for_status().text
            )
            seen.append(text)

    load("chunks=10,gap=0.02", requests=30, metrics_port=0, labels=NAMED, on_progress=look)
    assert seen
    assert 'variant="ngram"' in seen[-1]
    assert list(targets.glob("*")) == []


def test_a_taken_port_is_an_error_that_names_it(load: Load, replay) -> None:
    taken = int(replay.url.rpartition(":")[2])
    with pytest.raises(LoadError, match=f"port {taken}"):
        load(metrics_port=taken)


def test_tpot_buckets_resolve_a_quarter_from_one_millisecond_to_one_second() -> None:
    assert (TPOT_BOUNDS[0], TPOT_BOUNDS[-1]) == (0.001, 1.0)
    assert all(b / a < 1.3 for a, b in itertools.pairwise(TPOT_BOUNDS))
