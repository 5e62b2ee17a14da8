"""What Docker and Compose say, read without either."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from outrider.errors import RuntimeStateError
from outrider.runtime import docker_engine
from outrider.runtime.base import State
from outrider.runtime.compose_running import container_state, ending, status_from, when
from outrider.runtime.docker_engine import compose_version, find_compose


def facts(status: str, **more: Any) -> dict[str, Any]:
    state = {"Status": status, "ExitCode": 0, "OOMKilled": False, "Pid": 0, **more}
    return {
        "Id": "ab" * 32,
        "Image": "sha256:1",
        "RestartCount": 0,
        "State": state,
        "Config": {
            "Labels": {"dev.outrider.port": "8001", "dev.outrider.bind": "127.0.0.1", "dev.outrider.stack-digest": "d"},
            "Image": "outrider/serve:1",
            "Cmd": ["vllm", "serve"],
        },
    }


@pytest.mark.parametrize(
    ("status", "health", "answers", "expected"),
    [
        ("running", "healthy", False, State.READY),
        ("running", "starting", False, State.STARTING),
        ("running", "starting", True, State.READY),
        ("running", "unhealthy", False, State.STARTING),
        ("restarting", "healthy", True, State.STARTING),
        ("exited", "healthy", True, State.ENDED),
        ("created", None, False, State.ENDED),
    ],
)
def test_a_containers_state_is_read_from_its_status_and_health(
    status: str, health: str | None, answers: bool, expected: State
) -> None:
    assert container_state(facts(status, Health={"Status": health}), answers=answers) is expected


def test_an_ended_container_says_how_and_how_often() -> None:
    ended = facts("exited", ExitCode=137, OOMKilled=True)
    ended["RestartCount"] = 3
    assert "OOM killer" in (ending(ended) or "")
    assert (ending(ended) or "").endswith("restarted 3 times")
    assert ending(facts("running")) is None
    status = status_from("s/v", ended)
    assert (status.url, status.port, status.state) == ("http://127.0.0.1:8001", 8001, State.ENDED)
    assert status.labels == {"stack_digest": "d", "image_digest": "sha256:1", "image": "outrider/serve:1"}


def test_dockers_times_have_nanoseconds_and_a_zero() -> None:
    assert when("2026-01-02T03:04:05.123456789Z") == 1767323045.0
    assert when("0001-01-01T00:00:00Z") is None
    assert when("") is None


@pytest.mark.parametrize(
    ("text", "version"), [("5.6.1\n", (5, 6)), ("v2.26.1", (2, 26)), ("docker-compose version 1.29", None), ("", None)]
)
def test_composes_version_is_read(text: str, version: tuple[int, int] | None) -> None:
    assert compose_version(text) == version


def test_version_1_of_compose_is_refused_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = tmp_path / "docker-compose"
    old.write_text(f"#!{sys.executable}\nprint('1.29.2')\n")
    old.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RuntimeStateError, match=r"Compose 2\.17 or newer is not here") as caught:
        find_compose()
    assert "1.29.2" in caught.value.evidence
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    with pytest.raises(RuntimeStateError) as caught:
        find_compose()
    assert "neither" in caught.value.evidence


def test_an_absent_sdk_is_an_error_that_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "docker", None)
    with pytest.raises(RuntimeStateError, match="SDK is not installed") as caught:
        docker_engine.DockerEngine()
    assert "outrider[compose]" in caught.value.next_step
