"""One playbook through ansible-runner: its environment, its events, and an end without orphans."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

import psutil

from outrider.provision.errors import ProvisionError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from outrider.provision.run_directory import RunDirectory

# ansible-runner hands its whole environment to the playbook and writes it into the artifacts; tokens of the operator's
# shell belong in neither.
_KEPT = {
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "TMPDIR", "TZ", "LANG", "SSH_AUTH_SOCK", "VIRTUAL_ENV",
    "PYTHONPATH", "AWX_ISOLATED_DATA_DIR",
}  # fmt: skip
_KEPT_PREFIXES = ("ANSIBLE_", "RUNNER_", "LC_")
_SECRET_WORDS = ("PASSWORD", "PASSWD", "SECRET", "TOKEN")
_GRACE_S = 10.0


@dataclass(frozen=True, slots=True)
class Order:
    """What to run.

    Attributes:
        playbook: absolute path.
        inventory: absolute path.
        variables: extra variables; no secrets, they are written into the artifacts.
        check: change nothing, show what would change.
        tags, limit: as ansible-playbook takes them.
        password_files: options of ansible-playbook that name files with secrets, with those files.
    """

    playbook: Path
    inventory: Path
    variables: Mapping[str, Any] = field(default_factory=dict)
    check: bool = False
    tags: str | None = None
    limit: str | None = None
    password_files: Mapping[str, Path] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ended:
    """How a playbook ended: its exit code, and the last lines that it printed where no event says why."""

    code: int
    output: str


def run_playbook(order: Order, directory: RunDirectory, handle: Callable[[dict[str, Any]], None]) -> Ended:
    """Run a playbook; events go to `handle`, from another thread.

    Ctrl-C leaves as KeyboardInterrupt after the playbook and its connections have ended.

    Raises:
        ProvisionError: ansible-runner or ansible-core is not installed.
    """
    try:
        from ansible_runner import run_async  # noqa: PLC0415 - an extra that only this needs
    except ImportError as error:
        raise ProvisionError(
            "ansible-runner is not installed", evidence=str(error), next_step="pip install 'outrider[provision]'"
        ) from error

    def take(event: dict[str, Any]) -> bool:
        handle(event)
        return True

    finished = Event()
    thread, runner = run_async(
        private_data_dir=str(directory.path),
        ident="ansible",
        project_dir=str(order.playbook.parent),
        playbook=str(order.playbook),
        inventory=str(order.inventory),
        extravars=dict(order.variables),
        cmdline=_command_line(order),
        envvars=_settings(order.playbook.parent),
        settings={"pexpect_timeout": 1},
        quiet=True,
        event_handler=take,
        # Without one of ours, ansible-runner would take SIGINT and SIGTERM for itself.
        cancel_callback=lambda: False,
        finished_callback=lambda _runner: finished.set(),
        status_handler=_trim_environment,
    )
    try:
        while thread.is_alive():
            thread.join(0.5)  # not for ever: a signal that another thread takes is acted on when this one wakes
    except BaseException:
        _end_children(finished)
        raise
    stdout = directory.path / "artifacts" / "ansible" / "stdout"
    output = stdout.read_text(encoding="utf-8", errors="replace") if stdout.is_file() else ""
    return Ended(int(runner.rc or 0), output[-4000:])


def _command_line(order: Order) -> str:
    words = ["--diff"]
    words += ["--check"] if order.check else []
    # ansible-runner splits this as a shell would; anything odd was refused before.
    for option, file in order.password_files.items():
        words += [option, _quoted(str(file))]
    if order.tags:
        words += ["--tags", _quoted(order.tags)]
    if order.limit:
        words += ["--limit", _quoted(order.limit)]
    return " ".join(words)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\"'\"'") + "'"


def _settings(tree: Path) -> dict[str, str]:
    beside = str(Path(sys.executable).parent)  # ansible-playbook of this environment, activated or not
    path = f"{beside}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    settings = {"PATH": path, "ANSIBLE_FORCE_COLOR": "0", "ANSIBLE_NOCOLOR": "1", "ANSIBLE_RETRY_FILES_ENABLED": "0"}
    own = tree / "ansible.cfg"
    if own.is_file() and "ANSIBLE_CONFIG" not in os.environ:
        settings["ANSIBLE_CONFIG"] = str(own)
    return settings


def kept_environment(env: Mapping[str, str]) -> dict[str, str]:
    """The part of an environment that a playbook gets, and that its artifacts may hold."""
    return {
        name: value
        for name, value in env.items()
        if name in _KEPT
        or (name.startswith(_KEPT_PREFIXES) and (name.endswith("_FILE") or not any(w in name for w in _SECRET_WORDS)))
    }


def _trim_environment(_status: dict[str, Any], runner_config: Any) -> None:
    """Runs before ansible-runner writes the environment down and starts the playbook with it."""
    runner_config.env = kept_environment(runner_config.env)


def _end_children(finished: Event) -> None:
    """Interrupt the playbook as Ctrl-C in its terminal would; what has not ended after the grace is killed.

    Its workers lead sessions of their own (ansible-core 2.19), so a signal to the process group would miss them.
    Nothing is waited for in a way that reaps: the playbook is the child of ansible-runner's thread to wait for. Nor is
    that thread joined: CPython takes a thread for ended whose `join` an exception has left (seen in 3.11.7).
    """
    family = psutil.Process().children(recursive=True)
    for process in family:
        if _is_playbook(process):
            process.send_signal(signal.SIGINT)
    if not _until_gone(family):
        _kill(family)
    if not finished.wait(_GRACE_S):
        _kill(psutil.Process().children(recursive=True))  # what began only after it was to end


def _kill(family: list[psutil.Process]) -> None:
    for process in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    _until_gone(family)


def _until_gone(family: list[psutil.Process]) -> bool:
    """Whether all of them end within the grace."""
    deadline = monotonic() + _GRACE_S
    while not all(_is_gone(process) for process in family):
        if monotonic() > deadline:
            return False
        sleep(0.05)
    return True


def _is_gone(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _is_playbook(process: psutil.Process) -> bool:
    try:
        return process.ppid() == os.getpid() and any("ansible-playbook" in word for word in process.cmdline())
    except psutil.NoSuchProcess:
        return False
