"""The locustfiles under plain Locust: TTFT and TPOT as rows of their own, merged over workers."""

import csv
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.quiet

LOCUSTFILES = Path(__file__).parents[3] / "locustfiles"
NAMES = sorted(path.name for path in LOCUSTFILES.glob("*.py"))


@pytest.fixture
def locust() -> Iterator[Callable[..., subprocess.Popen]]:
    """Starts Locust, and ends what the test left of it."""
    running: list[subprocess.Popen] = []

    def start(*arguments: str) -> subprocess.Popen:
        command = [sys.executable, "-m", "locust", "--loglevel", "WARNING", *arguments]
        running.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
        return running[-1]

    yield start
    for process in running:
        process.kill()
        process.wait()
        process.stdout.close()


def rows(prefix: Path) -> dict[tuple[str, str], dict[str, str]]:
    with Path(f"{prefix}_stats.csv").open() as file:
        return {(row["Type"], row["Name"]): row for row in csv.DictReader(file)}


def test_all_four_scenarios_are_there_and_short() -> None:
    assert NAMES == ["chat.py", "ramp.py", "soak.py", "spike.py"]
    for name in NAMES:
        assert len((LOCUSTFILES / name).read_text().splitlines()) < 40


@pytest.mark.parametrize(
    ("name", "row", "options"),
    [
        ("chat.py", "chat", ["--users", "2", "--spawn-rate", "2", "--run-time", "3s"]),
        ("soak.py", "chat", ["--users", "2", "--spawn-rate", "2", "--run-time", "3s"]),
        ("ramp.py", "2 users", ["--stage-seconds", "1"]),
        ("spike.py", "spike", ["--stage-seconds", "1"]),
    ],
)
def test_a_scenario_runs_under_plain_locust(
    locust, replay, tmp_path: Path, name: str, row: str, options: list[str]
) -> None:
    run = locust(
        *("-f", str(LOCUSTFILES / name), "--host", replay.url, "--model", "chunks=10,gap=0.02,tokens=2"),
        *("--headless", "--csv", str(tmp_path / "out"), *options),
    )
    output = run.communicate(timeout=60)[0]
    assert run.returncode == 0, output
    found = rows(tmp_path / "out")
    assert int(found["SSE", row]["Request Count"]) > 0
    ttft, tpot, whole = (float(found[kind, row]["Average Response Time"]) for kind in ("TTFT", "TPOT", "SSE"))
    assert ttft >= 18  # the server's timers count whole milliseconds: 20 may be 19
    assert tpot == pytest.approx(10, rel=0.3)
    assert whole == pytest.approx(ttft + 18 * tpot, rel=0.2)


def test_a_failing_server_is_counted_by_locust_with_its_outcome(locust, replay, tmp_path: Path) -> None:
    run = locust(
        *("-f", str(LOCUSTFILES / "chat.py"), "--host", replay.url, "--model", "fault=reset,gap=0.002"),
        *("--headless", "--run-time", "2s", "--csv", str(tmp_path / "out"), "--users", "1"),
    )
    output = run.communicate(timeout=60)[0]
    assert run.returncode == 1, "Locust's own code for failed requests"
    assert "RequestFailed('reset: " in output
    found = rows(tmp_path / "out")
    assert found["SSE", "chat"]["Failure Count"] == found["SSE", "chat"]["Request Count"] != "0"
    assert ("TTFT", "chat") not in found


def test_a_master_merges_the_rows_of_its_workers(locust, replay, tmp_path: Path, free_port: int) -> None:
    chat = ("-f", str(LOCUSTFILES / "chat.py"), "--model", "chunks=10,gap=0.02")
    prefix = tmp_path / "out"
    master = locust(
        *(*chat, "--master", "--expect-workers", "2", "--master-bind-port", str(free_port), "--host", replay.url),
        *("--headless", "--users", "4", "--spawn-rate", "4", "--run-time", "4s", "--csv", str(prefix)),
    )
    workers = [locust(*chat, "--worker", "--master-port", str(free_port)) for _ in range(2)]
    output = master.communicate(timeout=90)[0]
    for worker in workers:
        worker.communicate(timeout=30)
    assert master.returncode == 0, output
    found = rows(prefix)
    merged = int(found["SSE", "chat"]["Request Count"])
    assert merged == int(found["TTFT", "chat"]["Request Count"]) == int(found["TPOT", "chat"]["Request Count"])
    served = len(list(replay.truth().values()))
    assert merged > 20
    assert served > 1, "the workers walk through the prompts"
