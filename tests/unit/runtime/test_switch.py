"""Switching on a runtime of two small servers: order, lock, rollback, and what is said."""

from __future__ import annotations

import socket
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from outrider.engine import Launch
from outrider.errors import EngineError, RuntimeStateError
from outrider.runtime import canary, ports
from outrider.runtime.base import State, Status
from outrider.runtime.lock import locked
from outrider.runtime.switch import Candidate, Switch, SwitchOptions
from outrider.stack import find_stack

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

STACK = find_stack("smollm2-cpu")


@dataclass
class Engine:
    """A started engine of the runtime below."""

    runtime: Recorder
    name: str
    url: str

    def stop(self) -> None:
        self.runtime.stop(self.name)


@dataclass
class Recorder:
    """A runtime that keeps names and writes down what it was told."""

    up: dict[str, int] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)
    broken: set[str] = field(default_factory=set)

    def start(self, name: str, launch: Launch, **_more: object) -> Engine:
        self.told.append(f"start {name}")
        if name in self.broken:
            raise EngineError(f"the engine of {name} ended: out of memory")
        self.up[name] = launch.port
        return Engine(self, name, f"http://127.0.0.1:{launch.port}")

    def stop(self, name: str) -> Status:
        self.told.append(f"stop {name}")
        self.up.pop(name, None)
        return self.status(name)

    def status(self, name: str) -> Status:
        return Status(name, State.READY if name in self.up else State.ENDED, port=self.up.get(name, 0))

    def list(self) -> Sequence[Status]:
        return [self.status(name) for name in sorted(self.up)]


@pytest.fixture
def port() -> int:
    return ports.free_port()


@pytest.fixture
def verdicts(monkeypatch: pytest.MonkeyPatch) -> dict[str, bool]:
    """What the acceptance canary says, by floor: the real canaries have tests of their own."""
    said = {"ok": True}

    def judge(url: str, plan: canary.Plan, *, key: str | None, on_result: object) -> tuple[list, dict]:
        return [canary.Canary("acceptance", said["ok"], "acceptance length 1.02, floor 1.55")], {"hello": "world"}

    monkeypatch.setattr("outrider.runtime.switch.run_canaries", judge)
    return said


def switch(runtime: Recorder, tmp_path: Path, steps: list[str] | None = None, **options: object) -> Switch:
    def candidate(variant: str, port: int) -> Candidate:
        return Candidate(variant, Launch(("engine", variant), {}, port, "/health", "/metrics"))

    said = steps if steps is not None else []
    return Switch(STACK, runtime, candidate, tmp_path, SwitchOptions(**options), on_step=said.append)


def test_the_running_sibling_is_stopped_before_the_new_variant_starts(
    tmp_path: Path, port: int, verdicts: dict[str, bool]
) -> None:
    runtime = Recorder({"smollm2-cpu/baseline": port, "other/baseline": 1})
    running = switch(runtime, tmp_path).to("eagle3", port)
    assert runtime.told == ["stop smollm2-cpu/baseline", "start smollm2-cpu/eagle3"]
    assert running.name == "smollm2-cpu/eagle3"
    assert set(runtime.up) == {"smollm2-cpu/eagle3", "other/baseline"}


def test_a_failed_canary_brings_the_variant_before_back_and_says_so(
    tmp_path: Path, port: int, verdicts: dict[str, bool]
) -> None:
    verdicts["ok"] = False
    runtime = Recorder({"smollm2-cpu/baseline": port})
    with pytest.raises(RuntimeStateError, match="rolled back: smollm2-cpu/baseline serves again") as caught:
        switch(runtime, tmp_path).to("eagle3", port)
    assert "acceptance length 1.02, floor 1.55" in str(caught.value)
    assert runtime.told == [
        "stop smollm2-cpu/baseline",
        "start smollm2-cpu/eagle3",
        "stop smollm2-cpu/eagle3",
        "start smollm2-cpu/baseline",
    ]
    assert runtime.up == {"smollm2-cpu/baseline": port}


def test_a_variant_that_does_not_start_is_rolled_back_too(tmp_path: Path, port: int, verdicts: dict[str, bool]) -> None:
    runtime = Recorder({"smollm2-cpu/baseline": port}, broken={"smollm2-cpu/eagle3"})
    with pytest.raises(RuntimeStateError, match="rolled back") as caught:
        switch(runtime, tmp_path).to("eagle3", port)
    assert "out of memory" in str(caught.value)
    assert runtime.up == {"smollm2-cpu/baseline": port}


def test_where_nothing_ran_before_nothing_is_left(tmp_path: Path, port: int, verdicts: dict[str, bool]) -> None:
    verdicts["ok"] = False
    runtime = Recorder()
    with pytest.raises(RuntimeStateError, match="nothing is left running"):
        switch(runtime, tmp_path).to("eagle3", port)
    assert runtime.up == {}


def test_a_rollback_that_fails_tells_both_stories(tmp_path: Path, port: int, verdicts: dict[str, bool]) -> None:
    verdicts["ok"] = False
    runtime = Recorder({"smollm2-cpu/baseline": port}, broken={"smollm2-cpu/baseline"})
    with pytest.raises(RuntimeStateError, match="nothing serves") as caught:
        switch(runtime, tmp_path).to("eagle3", port)
    assert "acceptance length 1.02" in str(caught.value)
    assert "smollm2-cpu/baseline ended: out of memory" in str(caught.value)


def test_a_second_switch_while_one_runs_is_refused_and_touches_nothing(
    tmp_path: Path, port: int, verdicts: dict[str, bool]
) -> None:
    runtime = Recorder({"smollm2-cpu/baseline": port})
    (tmp_path / "switch" / STACK.name).mkdir(parents=True)
    with (
        locked(tmp_path / "switch" / STACK.name / "lock", "smollm2-cpu/ngram"),
        pytest.raises(RuntimeStateError, match="under way"),
    ):
        switch(runtime, tmp_path).to("eagle3", port)
    assert runtime.told == []


def test_the_variant_that_runs_already_is_left_alone(tmp_path: Path, port: int, verdicts: dict[str, bool]) -> None:
    runtime = Recorder({"smollm2-cpu/eagle3": port})
    with pytest.raises(RuntimeStateError, match="runs already"):
        switch(runtime, tmp_path).to("eagle3", port)
    assert runtime.told == []


def test_a_port_that_is_still_held_stops_the_switch_and_names_the_holder(
    tmp_path: Path, port: int, verdicts: dict[str, bool]
) -> None:
    runtime = Recorder({"smollm2-cpu/baseline": port})
    with socket.create_server(("127.0.0.1", port)), pytest.raises(RuntimeStateError, match="is taken") as caught:
        switch(runtime, tmp_path).to("eagle3", port)
    assert "pid" in str(caught.value)
    assert "start smollm2-cpu/eagle3" not in runtime.told


def test_baselines_answers_are_recorded_for_later_and_only_for_this_stack(
    tmp_path: Path, port: int, verdicts: dict[str, bool]
) -> None:
    runtime = Recorder()
    mover = switch(runtime, tmp_path)
    mover.to("baseline", port)
    assert mover._recorded_baseline() == {"hello": "world"}
    file = tmp_path / "switch" / STACK.name / "baseline-answers.json"
    file.write_text(file.read_text().replace(STACK.digest(), "0" * 16))
    assert mover._recorded_baseline() == {}


def test_a_dry_run_tells_every_step_and_does_none(tmp_path: Path, port: int) -> None:
    runtime = Recorder({"smollm2-cpu/baseline": port})
    steps = switch(runtime, tmp_path).steps("eagle3", port)
    text = "\n".join(steps)
    assert steps[0].startswith("stop smollm2-cpu/baseline")
    assert "start smollm2-cpu/eagle3: engine eagle3" in text
    assert f"http://127.0.0.1:{port}/health" in text
    assert "acceptance length must reach 1.55" in text
    assert steps[-1].endswith("start smollm2-cpu/baseline again")
    assert runtime.told == []
    beside = "\n".join(switch(runtime, tmp_path, canaries=False).steps("eagle3", port, beside=True))
    assert "stop" not in beside


def test_threads_do_not_both_switch(tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    inside, go_on = threading.Event(), threading.Event()

    class Slow(Recorder):
        def start(self, name: str, launch: Launch, **more: object) -> Engine:
            inside.set()
            assert go_on.wait(30)
            return super().start(name, launch, **more)

    runtime = Slow()
    first = threading.Thread(target=lambda: switch(runtime, tmp_path, canaries=False).to("ngram", port))
    first.start()
    assert inside.wait(30)
    with pytest.raises(RuntimeStateError, match="under way"):
        switch(runtime, tmp_path, canaries=False).to("eagle3", port)
    go_on.set()
    first.join(30)
    assert set(runtime.up) == {"smollm2-cpu/ngram"}
