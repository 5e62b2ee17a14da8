from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from prometheus_client import REGISTRY, CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from tests.unit.vllm_ext.simulated import Engine, Traffic, settings

from outrider.vllm_ext import metrics, state_file
from outrider.vllm_ext.hook import Hook
from outrider.vllm_ext.pace import Pace
from outrider.vllm_ext.snapshot import snapshot
from outrider.vllm_ext.state_file import StateFile, read_state, state_path

LOG = logging.getLogger("vllm.outrider_utility")


@pytest.fixture(autouse=True)
def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(state_file, "IN_MEMORY", tmp_path / "no-such-directory")
    return tmp_path


def scraped() -> dict[str, dict[tuple[str, ...], float]]:
    registry = CollectorRegistry()
    metrics.register(registry)
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return found


def test_the_figures_of_the_core_are_on_the_servers_metrics() -> None:
    engine = Engine(settings(3), seed=1)
    engine.run(Traffic({0: 1.0, 1: 1.3, 2: 1.6, 3: 1.9}, acceptance=0.2), 800)
    engine.run(Traffic({0: 1.0, 1: 1.1, 2: 1.2, 3: 1.3}, acceptance=0.7, batch=8), 400)
    pace = Pace()
    pace.total_s, pace.followed, pace.stride = 0.01, 900, 4
    StateFile(state_path(), LOG).write(snapshot(engine.controller, pace, fault=None, other_steps=7))

    found = scraped()

    assert found["outrider_utility_exported"] == {(): 1}
    assert found["outrider_utility_fault"] == {(): 0}
    assert found["outrider_utility_k"] == {("1",): 0, ("7-8",): engine.controller.band_of(8).k}
    assert found["outrider_utility_switches_total"]["1",] >= 1
    assert found["outrider_utility_tests_total"]["1",] >= 1
    assert found["outrider_utility_ratio"]["1", "0"] == 1.0
    assert found["outrider_utility_ratio"]["7-8", "3"] > 1.2
    assert found["outrider_utility_step_cost_ratio"]["1", "3"] == pytest.approx(1.9, rel=0.1)
    assert found["outrider_utility_step_seconds"]["7-8", "3"] == pytest.approx(0.026, rel=0.1)
    assert found["outrider_utility_tokens_per_step"]["0",] == 1.0
    assert found["outrider_utility_steps_total"]["other",] == 7
    assert found["outrider_utility_steps_total"]["followed",] == 900
    assert found["outrider_utility_stride"] == {(): 4}
    assert found["outrider_utility_overhead_seconds_total"] == {(): 0.01}
    assert sum(found["outrider_utility_phase"][("1", phase)] for phase in ("set", "test")) == 1


def test_a_fault_shows() -> None:
    Hook(None, lambda: settings(3), StateFile(state_path(), LOG), LOG, engine_k=3)

    assert scraped()["outrider_utility_fault"] == {(): 1}


def test_without_a_state_file_the_scrape_says_that_nothing_is_exported() -> None:
    assert scraped() == {"outrider_utility_exported": {(): 0}}


def test_a_half_written_file_costs_that_scrape_only() -> None:
    StateFile(state_path(), LOG)
    state_path().write_text('{"fault": nu')

    assert scraped() == {"outrider_utility_exported": {(): 0}}


def test_core_and_server_of_an_engine_agree_on_the_place() -> None:
    program = (
        "import multiprocessing as m, os, sys\n"
        "from outrider.vllm_ext.state_file import state_path\n"
        "def core(q): q.put(str(state_path()))\n"
        "if __name__ == '__main__':\n"
        "    c = m.get_context('spawn'); q = c.Queue(); p = c.Process(target=core, args=(q,)); p.start()\n"
        "    assert q.get(timeout=60) == str(state_path()), 'two places'\n"
        "    p.join(60)\n"
    )
    with tempfile.TemporaryDirectory() as directory:
        script = Path(directory) / "two_processes.py"
        script.write_text(program)
        subprocess.run([sys.executable, str(script)], check=True, timeout=120, env=os.environ | {"TMPDIR": directory})


def test_figures_are_kept_in_memory_where_a_system_has_a_directory_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = tmp_path / "shm"
    memory.mkdir()
    monkeypatch.setattr(state_file, "IN_MEMORY", memory)
    assert state_path().parent.parent == memory

    StateFile(state_path(), LOG).write({"fault": None})

    assert read_state(state_path()) is not None


def test_a_place_of_another_user_costs_the_metrics_and_not_the_engine(
    own_place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = state_path().parent
    directory.mkdir()
    directory.chmod(0o777)  # whoever made it can write there

    file = StateFile(state_path(), LOG)
    file.write({"fault": None})
    file.write({"fault": None})

    assert read_state(state_path()) is None
    assert caplog.text.count("no metrics") == 1


def test_a_place_that_is_a_link_is_refused(own_place: Path, caplog: pytest.LogCaptureFixture) -> None:
    elsewhere = own_place / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    state_path().parent.symlink_to(elsewhere)

    StateFile(state_path(), LOG).write({"fault": None})

    assert list(elsewhere.iterdir()) == []
    assert "no metrics" in caplog.text


def test_what_dead_engines_left_behind_is_removed() -> None:
    StateFile(state_path(), LOG)
    left = state_path().with_name("4194305.json")  # above the largest process number
    left.write_text(json.dumps({"fault": None}))
    StateFile(state_path(), LOG).write({"fault": None})

    assert not left.exists()
    assert state_path().exists()


def test_the_middleware_gives_back_the_application_that_it_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    registered: list[CollectorRegistry] = []
    monkeypatch.setattr(metrics, "register", registered.append)
    app = object()

    assert metrics.UtilityMetrics(app) is app
    assert registered == [REGISTRY]


def test_nothing_heavy_and_nothing_else_of_outrider_is_imported_in_the_engine() -> None:
    names = ["hook", "metrics", "settings", "controller", "interface"]
    program = (
        "import sys\n"
        + "".join(f"import outrider.vllm_ext.{name}\n" for name in names)
        + "own = {m for m in sys.modules if m.startswith('outrider') and not m.startswith('outrider.vllm_ext')}\n"
        "heavy = {'numpy', 'torch', 'pydantic', 'yaml', 'rich', 'typer', 'vllm', 'scipy'} & sys.modules.keys()\n"
        "assert own == {'outrider'}, own\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_the_module_says_which_process_it_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_file.multiprocessing, "parent_process", lambda: None)
    assert state_path().name == f"{os.getpid()}.json"
