"""A container that runs an engine: what Docker says of it, its log as it grows, its end."""

from __future__ import annotations

import atexit
import contextlib
import datetime as dt
import queue
import re
import threading
import time
from typing import TYPE_CHECKING, Any, Self

import httpx
import psutil

from outrider.runtime import diagnosis, process_group
from outrider.runtime.base import State, Status
from outrider.runtime.record import oom_kill_count
from outrider.runtime.render_compose import BIND_LABEL, PORT_LABEL
from outrider.runtime.running import base_url

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from outrider.errors import EngineError
    from outrider.runtime.docker_engine import DockerEngine

_LINE_END = re.compile(r"\r\n|\n|\r")
_LABELS = "dev.outrider."
_HEALTH_LOOK_S = 1.0


def container_state(facts: Mapping[str, Any], *, answers: bool = False) -> State:
    """Where an inspected container stands.

    Args:
        facts: `docker inspect`.
        answers: whether its health path was just seen to answer; Docker's own look lags by its interval.
    """
    state = facts["State"]
    if state["Status"] in {"exited", "dead", "created", "removing"}:
        return State.ENDED
    healthy = (state.get("Health") or {}).get("Status") == "healthy"
    return State.READY if state["Status"] == "running" and (healthy or answers) else State.STARTING


def when(text: str) -> float | None:
    """Unix seconds of Docker's time stamp, which has nanoseconds; None for its zero."""
    match = re.match(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)", text)
    if match is None or text.startswith("0001"):
        return None
    return dt.datetime.fromisoformat(match[1] + "+00:00").timestamp()


def ending(facts: Mapping[str, Any]) -> str | None:
    """How a container ended, in words; None while it runs."""
    state = facts["State"]
    if state["Status"] == "running" and not state.get("Restarting"):
        return None
    oom = 1 if state.get("OOMKilled") else None  # Docker misses some
    words = diagnosis.describe_exit(state["ExitCode"], because=None, oom_kills=oom)
    return f"{words}; restarted {facts['RestartCount']} times" if facts.get("RestartCount") else words


def url_from(facts: Mapping[str, Any]) -> str:
    """Base URL of a container's API, as its labels say."""
    labels: dict[str, str] = facts["Config"]["Labels"]
    return base_url(labels.get(BIND_LABEL, "127.0.0.1"), int(labels.get(PORT_LABEL, 0)))


def status_from(name: str, facts: Mapping[str, Any]) -> Status:
    """The status of a name from its newest container; a starting one is asked once whether it answers."""
    labels: dict[str, str] = facts["Config"]["Labels"]
    url = url_from(facts)
    state = container_state(facts)
    if state is State.STARTING and answers(f"{url}{_health_path(facts)}"):
        state = container_state(facts, answers=True)
    return Status(
        name=name,
        state=state,
        url=url,
        pid=facts["State"].get("Pid") or None,
        port=int(labels.get(PORT_LABEL, 0)),
        argv=tuple(facts["Config"].get("Cmd") or ()),
        labels={
            "stack_digest": labels.get(f"{_LABELS}stack-digest", ""),
            "image_digest": facts.get("Image", ""),
            "image": facts["Config"].get("Image", ""),
        },
        detached=True,
        started_at=when(facts["State"].get("StartedAt", "")),
        ended_at=when(facts["State"].get("FinishedAt", "")) if state is State.ENDED else None,
        ending=ending(facts) if state is State.ENDED else None,
    )


def _health_path(facts: Mapping[str, Any]) -> str:
    test = (facts["Config"].get("Healthcheck") or {}).get("Test") or ["/health"]
    return "/" + str(test[-1]).rpartition("/")[2]


def answers(url: str) -> bool:
    """Whether a URL answers 200 at once."""
    with contextlib.suppress(httpx.HTTPError):
        return httpx.get(url, timeout=_HEALTH_LOOK_S, trust_env=False).status_code == httpx.codes.OK
    return False


class LogPump:
    """Collects a container's output in the background; `new_lines` gives what came since the last call."""

    def __init__(self, docker: DockerEngine, container: str) -> None:
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._docker = docker
        self._container = container
        threading.Thread(target=self._pump, name="container-log", daemon=True).start()

    def _pump(self) -> None:
        partial = ""
        with contextlib.suppress(Exception):  # the container or the engine went away: its log ends here
            for chunk in self._docker.log_stream(self._container):
                *complete, partial = _LINE_END.split(partial + chunk.decode(errors="replace"))
                for line in complete:
                    self._lines.put(line)

    def new_lines(self) -> list[str]:
        """Complete lines since the last call."""
        found = []
        with contextlib.suppress(queue.Empty):
            while True:
                found.append(self._lines.get_nowait())
        return [line for line in found if line.strip()]


class ComposeRunning:
    """An engine in a container that this process started; see `outrider.runtime.base.Running`."""

    def __init__(self, docker: DockerEngine, name: str, facts: Mapping[str, Any], grace_s: int) -> None:
        self._docker = docker
        self._name = name
        self._grace_s = grace_s
        self._url = url_from(facts)
        self.container = str(facts["Id"])
        self._pid: int | None = facts["State"].get("Pid") or None
        self._first = process_group.look_up(self._pid) if self._pid else None
        self._oom_kills_before = oom_kill_count()
        self._ended = False
        self._restarts = int(facts.get("RestartCount") or 0)
        self._started_at = when(facts["State"].get("StartedAt", "")) or time.time()
        self._pump: LogPump | None = None
        _foreground.add(self)

    @property
    def name(self) -> str:
        """`<stack>/<variant>`."""
        return self._name

    @property
    def url(self) -> str:
        """Base URL of the API, from outside."""
        return self._url

    @property
    def pid(self) -> int | None:
        """The container's first process, as the host numbers it."""
        return self._pid

    @property
    def log_file(self) -> Path | None:
        """None: Docker keeps the log."""
        return None

    def log_lines(self, last: int | None = None) -> Sequence[str]:
        """The engine's output, oldest first."""
        return [line for line in _LINE_END.split(self._docker.log_text(self.container, last)) if line.strip()]

    @property
    def log_place(self) -> str:
        """The command that shows the whole log."""
        return f"docker logs {self.container[:12]}"

    def new_lines(self) -> list[str]:
        """Log lines since the last call."""
        if self._pump is None:
            self._pump = LogPump(self._docker, self.container)
        return self._pump.new_lines()

    def alive(self) -> bool:
        """Whether the engine that was started still runs: one that Docker started again is another."""
        facts = None if self._ended else self._docker.inspect(self.container)
        if facts is None or facts["State"]["Status"] != "running":
            return False
        return int(facts.get("RestartCount") or 0) == self._restarts

    def died_within(self, timeout_s: float) -> bool:
        """Wait for the engine's end, at most this long; its process tells sooner than Docker does."""
        if self._first is None:  # another machine's engine, or gone before it was looked up
            time.sleep(timeout_s)
            return not self.alive()
        self._ended = self._ended or process_group.wait_gone(self._first.ref, timeout_s)
        return self._ended or not self.alive()

    def bytes_read(self) -> int:
        """Bytes that the container's processes have read from storage; 0 where this user may not know."""
        total = 0
        with contextlib.suppress(psutil.Error, OSError):
            first = psutil.Process(self._pid)
            for process in (first, *first.children(recursive=True)):
                with contextlib.suppress(psutil.Error, OSError):
                    total += int(process.io_counters().read_bytes)
        return total

    def failure(self) -> EngineError | None:
        """Why it is not alive, with its last log lines; None while it lives."""
        if self.alive():
            return None
        code, oom_kills = self._docker.first_end(self.container, self._started_at)
        facts = self._docker.inspect(self.container)
        if code is None and facts is not None and facts["State"]["Status"] != "running":
            code, oom_kills = facts["State"]["ExitCode"], int(facts["State"]["OOMKilled"])
        if self._first is not None:  # it ran on this machine, whose kernel counts them; Docker misses some
            oom_kills = max(oom_kills, oom_kill_count() - self._oom_kills_before)
        again = "; Docker has started it again" if facts is not None and facts.get("RestartCount") else ""
        return diagnosis.explain(
            f"the engine of {self.name} ended",
            self.log_lines(),
            ending=diagnosis.describe_exit(code, because=None, oom_kills=oom_kills) + again,
            code=code,
            oom_kills=oom_kills,
            log=self.log_place,
        )

    def detach(self) -> None:
        """Let it outlive this process."""
        _foreground.discard(self)

    def stop(self) -> None:
        """End it; harmless when it has ended already."""
        _foreground.discard(self)
        self._docker.stop(self.container, self._grace_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


_foreground: set[ComposeRunning] = set()


@atexit.register
def _stop_foreground() -> None:
    """End what a caller forgot."""
    for running in list(_foreground):
        with contextlib.suppress(Exception):
            running.stop()
