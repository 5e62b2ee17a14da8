"""Puts one variant of a stack in the place of another, and the old one back if the new one is not fit.

Stop, wait until port and device memory are really free, start, wait until it answers, canaries; if one fails, or the
start does, the variant before is started again and the error says so. One switch a stack at a time.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from outrider.errors import OutriderError, RunsAlreadyError, RuntimeStateError
from outrider.runtime import device_memory, ports
from outrider.runtime.base import State, Status
from outrider.runtime.canary import plan_for, run_canaries
from outrider.runtime.lock import locked

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from outrider.engine import Launch
    from outrider.runtime.base import Progress, Running, Runtime
    from outrider.runtime.canary import Canary, Plan
    from outrider.stack import Stack

_UP = (State.STARTING, State.READY, State.LEFTOVER)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A variant that can be started.

    Attributes:
        variant: its name.
        launch: how its runtime starts it.
        weights: directories that it reads.
    """

    variant: str
    launch: Launch
    weights: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class SwitchOptions:
    """What a switch is told beside the variants.

    Attributes:
        host: address to listen on.
        key: API key, for the canaries.
        canaries: whether the new variant must pass them.
        al_floor: acceptance floor in place of the derived one.
    """

    host: str = "127.0.0.1"
    key: str | None = None
    canaries: bool = True
    al_floor: float | None = None


class Switch:
    """Switches variants of one stack on one runtime.

    Args:
        stack: the stack.
        runtime: where its variants run.
        candidate: how a variant is started on a port.
        state_dir: where the lock and baseline's recorded answers lie.
        options: see `SwitchOptions`.
        on_step: told each step as it begins.
        on_progress: called while an engine starts.
    """

    def __init__(
        self,
        stack: Stack,
        runtime: Runtime,
        candidate: Callable[[str, int], Candidate],
        state_dir: Path,
        options: SwitchOptions = SwitchOptions(),
        *,
        on_step: Callable[[str], None] = lambda _step: None,
        on_progress: Callable[[Progress], None] = lambda _progress: None,
    ) -> None:
        self._stack = stack
        self._runtime = runtime
        self._candidate = candidate
        self._directory = state_dir.absolute() / "switch" / stack.name
        self._options = options
        self._on_step = on_step
        self._on_progress = on_progress

    def running(self) -> list[Status]:
        """Variants of the stack that are up now."""
        return [s for s in self._runtime.list() if s.name.startswith(f"{self._stack.name}/") and s.state in _UP]

    def steps(self, variant: str, port: int, *, beside: bool = False) -> list[str]:
        """What `to` would do now, in words; `beside` leaves out what makes room."""
        before = [] if beside else [s for s in self.running() if s.name != self._name(variant)]
        plan = self._plan(variant)
        steps = [f"stop {status.name} and prove that port {status.port} is free" for status in before]
        if self._stack.engine.build == "cuda" and not beside:
            steps.append("wait until device memory is free")
        launch = self._candidate(variant, port).launch
        environment = " ".join(f"{name}={value}" for name, value in launch.env.items())
        steps.append(f"start {self._name(variant)}: {shlex.join(launch.argv)}\n   with {environment}")
        steps.append(f"wait until http://127.0.0.1:{port}{launch.health_path} answers")
        if self._options.canaries:
            steps += [f"canary: {line}" for line in _in_words(plan)]
            back = f"start {before[0].name} again" if before else "leave nothing running"
            steps.append(f"if a canary fails: stop {self._name(variant)}, {back}")
        return steps

    def to(self, variant: str, port: int) -> Running:
        """Serve this variant in place of whatever the stack serves; gives the engine, detached.

        Raises:
            RuntimeStateError: it runs already, another switch is under way, or something could not be freed.
            OutriderError: it did not start or a canary failed; says what runs now.
        """
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        with locked(self._directory / "lock", f"{self._stack.name}/{variant}"):
            before = self.running()
            if any(status.name == self._name(variant) for status in before):
                raise RunsAlreadyError(
                    f"{self._name(variant)} runs already",
                    evidence=", ".join(f"{s.name} is {s.state.value} on {s.url}" for s in before),
                    next_step=f"use it, or end it with: outrider stop {self._stack.name} {variant}",
                )
            for status in before:
                self._on_step(f"stopping {status.name}")
                self._runtime.stop(status.name)
            self._await_room([status.port for status in before] + [port])
            try:
                return self._start_and_judge(variant, port)
            except OutriderError as error:
                raise self._rolled_back(error, variant, before) from error

    def _start_and_judge(self, variant: str, port: int) -> Running:
        running = self._start(variant, port)
        if self._options.canaries:
            try:
                self._judge(running, variant)
            except BaseException:  # Ctrl-C included: an unproven engine does not stay
                self._on_step(f"stopping {running.name}")
                running.stop()
                raise
        return running

    def _start(self, variant: str, port: int) -> Running:
        chosen = self._candidate(variant, port)
        self._on_step(f"starting {self._name(variant)}")
        return self._runtime.start(
            self._name(variant),
            chosen.launch,
            host=self._options.host,
            on_progress=self._on_progress,
            detached=True,
            labels={"stack_digest": self._stack.digest()},
            weights=chosen.weights,
        )

    def _judge(self, running: Running, variant: str) -> None:
        def show(result: Canary) -> None:
            mark = "ok" if result.ok else "advisory" if result.advisory else "FAILED"
            self._on_step(f"canary {result.name}: {mark}, {result.evidence}")

        results, answers = run_canaries(running.url, self._plan(variant), key=self._options.key, on_result=show)
        if failed := [result for result in results if result.failed]:
            raise RuntimeStateError(
                f"{running.name} answers, but is not fit to serve: canary {failed[0].name} failed",
                evidence="\n".join(f"{result.name}: {result.evidence}" for result in failed),
                next_step="look at the drafter, its revision and preflight's findings",
            )
        if self._stack.variant(variant).speculation is None:
            self._record_baseline(answers)

    def _rolled_back(self, error: OutriderError, variant: str, before: Sequence[Status]) -> RuntimeStateError:
        """Start what was up before; gives the error that tells the whole story."""
        story = "\n".join(filter(None, (error.cause, error.evidence)))
        for status in before:
            old = status.name.rpartition("/")[2]
            self._on_step(f"rolling back to {status.name}")
            try:
                self._await_room([status.port])
                self._start(old, status.port)
            except OutriderError as second:
                return RuntimeStateError(
                    f"the switch to {variant} failed, and {status.name} could not be started again: nothing serves",
                    evidence=f"{story}\n{second.cause}\n{second.evidence}",
                    next_step=f"outrider serve {self._stack.name} {old}",
                )
        now = f"rolled back: {', '.join(s.name for s in before)} serves again" if before else "nothing is left running"
        return RuntimeStateError(
            f"the switch to {self._name(variant)} failed; {now}", evidence=story, next_step=error.next_step
        )

    def _await_room(self, taken: Sequence[int]) -> None:
        self._on_step("waiting until port and device memory are free")
        for port in dict.fromkeys(taken):
            ports.require_free(port, self._options.host)
        device_memory.wait_until_free(self._stack)

    def _plan(self, variant: str) -> Plan:
        return plan_for(self._stack, variant, al_floor=self._options.al_floor, baseline=self._recorded_baseline())

    def _record_baseline(self, answers: Mapping[str, str]) -> None:
        text = json.dumps({"stack_digest": self._stack.digest(), "answers": dict(answers)}, indent=1)
        self._answers_file.write_text(text + "\n", encoding="utf-8")

    def _recorded_baseline(self) -> dict[str, str]:
        """Baseline's answers; empty if they were never recorded, or under another stack."""
        try:
            recorded = json.loads(self._answers_file.read_text(encoding="utf-8"))
            return dict(recorded["answers"]) if recorded["stack_digest"] == self._stack.digest() else {}
        except (OSError, ValueError, LookupError, TypeError):
            return {}

    @property
    def _answers_file(self) -> Path:
        return self._directory / "baseline-answers.json"

    def _name(self, variant: str) -> str:
        return f"{self._stack.name}/{variant}"


def _in_words(plan: Plan) -> list[str]:
    lines = [f"{plan.question[0]!r} must be answered with {plan.question[1]!r}", "a JSON answer must parse"]
    if plan.speculates:
        floor = f"must reach {plan.al_floor:.2f}" if plan.al_floor is not None else "is shown"
        lines.append(f"acceptance length {floor}")
    lines.append("agreement with baseline's recorded answers is shown" if plan.baseline else
                 "agreement: baseline's answers are not recorded yet")  # fmt: skip
    return lines
