"""What `systemctl show` and a unit file say, as values."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.runtime import diagnosis
from outrider.runtime.base import State

_EXITED, _KILLED, _DUMPED = 1, 2, 3  # CLD_* of siginfo, which ExecMainCode is


@dataclass(frozen=True, slots=True)
class UnitState:
    """What systemd knows of a unit.

    Attributes:
        active: `active`, `activating`, `deactivating`, `failed`, `inactive`.
        sub: finer: `running`, `start-post`, `auto-restart`, ...
        main_pid: None without a main process.
        restarts: how often systemd started it again by itself.
        result: `success`, `exit-code`, `signal`, `oom-kill`, `timeout`, `start-limit-hit`, ...
        exit_code: of the main process; negative signal number; None if it has not ended.
        invocation: identifier of this run of the unit.
    """

    active: str
    sub: str
    main_pid: int | None
    restarts: int
    result: str
    exit_code: int | None
    invocation: str


def parse_show(text: str) -> UnitState:
    """Read `systemctl show --property ...`."""
    values = dict(line.partition("=")[::2] for line in text.splitlines() if "=" in line)
    code, status = int(values.get("ExecMainCode") or 0), int(values.get("ExecMainStatus") or 0)
    exit_code = {_EXITED: status, _KILLED: -status, _DUMPED: -status}.get(code)
    return UnitState(
        active=values.get("ActiveState", "inactive"),
        sub=values.get("SubState", "dead"),
        main_pid=int(values.get("MainPID") or 0) or None,
        restarts=int(values.get("NRestarts") or 0),
        result=values.get("Result", ""),
        exit_code=exit_code,
        invocation=values.get("InvocationID", ""),
    )


def unit_state(found: UnitState) -> State:
    """Where a unit stands: active means that its gate has seen it answer."""
    if found.active == "active":
        return State.READY
    return State.STARTING if found.active in {"activating", "deactivating", "reloading"} else State.ENDED


def ending(found: UnitState) -> str | None:
    """How a unit ended, in words; None while it runs or before its first run."""
    if found.active in {"active", "activating"} and found.sub != "auto-restart":
        return None
    if found.result == "timeout":
        return "systemd gave it up: it did not become ready within TimeoutStartSec"
    if found.result == "start-limit-hit":
        return "systemd gave it up: it was started too often within an hour"
    if found.exit_code is None:
        return None
    oom = 1 if found.result == "oom-kill" else 0
    return diagnosis.describe_exit(found.exit_code, because=None, oom_kills=oom)


def facts_of(unit_file: str) -> dict[str, str]:
    """The `X-Outrider-...` lines of a unit file."""
    return dict(line.partition("=")[::2] for line in unit_file.splitlines() if line.startswith("X-Outrider-"))
