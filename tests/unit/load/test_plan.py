"""Plans refuse what cannot be run."""

import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from outrider.load import LoadPlan

GOOD = {"url": "http://h:1", "model": "m", "workload": "chat", "arrivals": {"kind": "closed", "concurrency": 3}}


def plan(**fields: object) -> LoadPlan:
    return LoadPlan(**(GOOD | {"requests": 9} | fields))


@pytest.mark.parametrize("url", ["http://h:1", "http://h:1/", "http://h:1/v1", "http://h:1/v1/"])
def test_the_url_is_taken_with_or_without_v1(url: str) -> None:
    assert plan(url=url).url == "http://h:1"


def test_a_path_before_v1_is_kept() -> None:
    assert plan(url="https://h/models/a/v1").url == "https://h/models/a"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"url": "h:1"}, "not an http"),
        ({"url": "ftp://h"}, "not an http"),
        ({"workload": None}, "exactly one"),
        ({"prompts_file": Path("x")}, "exactly one"),
        ({"requests": None}, "requests, duration_s"),
        ({"requests": 0}, "greater than or equal to 1"),
        ({"arrivals": {"kind": "closed", "concurrency": 0}}, "greater than or equal to 1"),
        ({"arrivals": {"kind": "poisson", "rate": 0}}, "greater than 0"),
        ({"arrivals": {"kind": "gamma", "rate": 1}}, "burstiness"),
        ({"arrivals": {"kind": "sometimes"}}, "sometimes"),
        ({"api_key": "secret"}, "not permitted"),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(fields: dict, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        plan(**fields)


def test_a_trace_needs_no_limit() -> None:
    assert plan(requests=None, arrivals={"kind": "trace", "file": "t"}).rate is None


@pytest.mark.parametrize(
    ("fields", "warmup"),
    [
        ({}, 3),
        ({"warmup_requests": 0}, 0),
        ({"arrivals": {"kind": "poisson", "rate": 4.0}}, 8),
        ({"arrivals": {"kind": "trace", "file": "t"}}, 0),
    ],
)
def test_warm_up_follows_the_load(fields: dict, warmup: int) -> None:
    assert plan(**fields).warmup == warmup


def test_a_plan_survives_json() -> None:
    whole = plan(api_key_file=Path("/k"), labels={"stack": "s"}, arrivals={"kind": "gamma", "rate": 1, "burstiness": 2})
    assert LoadPlan.model_validate_json(whole.model_dump_json()) == whole


def test_the_package_is_cheap_to_import() -> None:
    code = "import sys, outrider.load.commands; print(sorted({'gevent', 'locust', 'polars'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
