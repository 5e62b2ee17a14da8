"""What systemctl says, read without systemd."""

from __future__ import annotations

import pytest

from outrider.errors import RuntimeStateError
from outrider.runtime import systemd
from outrider.runtime.base import State
from outrider.runtime.unit_state import ending, facts_of, parse_show, unit_state

RUNNING = (
    "ActiveState=active\nSubState=running\nMainPID=812\nNRestarts=0\nResult=success\nExecMainCode=0\nExecMainStatus=0\n"
)


@pytest.mark.parametrize(
    ("changes", "state", "words"),
    [
        ({}, State.READY, None),
        ({"ActiveState": "activating", "SubState": "start-post"}, State.STARTING, None),
        (
            {"ActiveState": "activating", "SubState": "auto-restart", "ExecMainCode": "2", "ExecMainStatus": "9"},
            State.STARTING,
            "signal 9 (SIGKILL)",
        ),
        ({"ActiveState": "failed", "Result": "timeout"}, State.ENDED, "did not become ready within"),
        ({"ActiveState": "failed", "Result": "start-limit-hit"}, State.ENDED, "started too often"),
        (
            {"ActiveState": "failed", "Result": "oom-kill", "ExecMainCode": "2", "ExecMainStatus": "9"},
            State.ENDED,
            "OOM killer",
        ),
        ({"ActiveState": "inactive", "ExecMainCode": "1", "ExecMainStatus": "3"}, State.ENDED, "exit code 3"),
        ({"ActiveState": "inactive", "SubState": "dead", "MainPID": "0"}, State.ENDED, None),
    ],
)
def test_a_units_state_and_ending_are_read(changes: dict[str, str], state: State, words: str | None) -> None:
    values = dict(line.split("=") for line in RUNNING.splitlines()) | changes
    found = parse_show("\n".join(f"{name}={value}" for name, value in values.items()))
    assert unit_state(found) is state
    assert ending(found) is None if words is None else words in (ending(found) or "")


def test_outriders_own_lines_of_a_unit_are_read_back() -> None:
    assert facts_of("[Unit]\nX-Outrider-Name=a/b\nAfter=x\n") == {"X-Outrider-Name": "a/b"}


def test_a_machine_without_systemd_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setattr(systemd, "_BOOTED", systemd.Path(f"{tmp_path}/none"))
    with pytest.raises(RuntimeStateError, match="systemd does not run this machine"):
        systemd.SystemdRuntime(systemd.Path(str(tmp_path)))


def test_an_account_that_does_not_exist_is_refused() -> None:
    with pytest.raises(RuntimeStateError, match="no user 'no-such-account'"):
        systemd._require_user("no-such-account")
    systemd._require_user("root")
