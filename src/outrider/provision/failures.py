"""A failed task as three lines: which node and task, what was wrong, what to do."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_AGAIN = "then run the same command again: what is done stays done"
_NO_REPOSITORY = (
    r"failed to fetch|failed to update apt cache|could not resolve|unable to connect|connection refused|"
    r"temporary failure resolving|network is unreachable|does not have a release file"
)
# What programs say when they fail, and what to do; first match wins.
_ADVICE = (
    (r"could not get lock|unable to acquire the dpkg|is another process using it|lock-frontend",
     "another package manager holds apt's lock: let it finish (ps -C apt,apt-get,unattended-upgr), " + _AGAIN),
    (r"signed by|no_pubkey|is not signed|gpg error|invalid signature",
     "the repository's signature does not fit its key: check key and address of the repository in the inventory"),
    (_NO_REPOSITORY,
     "a package repository cannot be reached from the node: check its address, proxy and route there, " + _AGAIN),
    (r"no space left", "free disk space on the node, " + _AGAIN),
    (r"missing sudo password|incorrect sudo password|sudo: a password is required|duplicate become password",
     "give the password of sudo in a file: --become-password-file FILE (mode 0600)"),
    (r"attempting to decrypt but no vault secrets|decryption failed",
     "give the vault's password in a file: --vault-password-file FILE (mode 0600)"),
    (r"dpkg was interrupted|dpkg --configure -a|unmet dependencies|fix-broken",
     "packages are half installed on the node: run `dpkg --configure -a && apt-get --fix-broken install` there, "
     + _AGAIN),
    (r"timed out waiting for last boot time|timed out waiting for post-reboot|reboot.*timed out",
     "the node did not come back from its reboot: look at its console, " + _AGAIN),
)  # fmt: skip
_UNREACHABLE = (
    (r"host key verification failed|host key for|remote host identification",
     "the node's host key is not the known one: compare it at the node's console, then put it into known_hosts"),
    (r"permission denied|too many authentication failures|no such identity",
     "the node refuses the key: check ansible_user and ansible_ssh_private_key_file in the inventory"),
    (r"could not resolve hostname|name or service not known",
     "the name does not resolve: check ansible_host in the inventory"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class NodeFailure:
    """Why a node did not come through.

    Attributes:
        node: name in the inventory.
        role: phase, empty for a play's own task.
        task: name of the task.
        wrong: what was wrong, in the words of the task.
        next_step: what to do.
        unreachable: SSH, not the task, failed.
    """

    node: str
    role: str
    task: str
    wrong: str
    next_step: str
    unreachable: bool = False

    def __str__(self) -> str:
        place = f"{self.role}: {self.task}" if self.role else self.task
        kind = "not reachable over SSH" if self.unreachable else "failed"
        return f"{self.node} {kind} at {place!r}\n  wrong: {_indented(self.wrong)}\n  next: {self.next_step}"


def failure_of(data: Mapping[str, Any], *, unreachable: bool, tasks_before: int = 0) -> NodeFailure:
    """What an event says about a failure.

    Args:
        data: `event_data` of `runner_on_failed` or `runner_on_unreachable`.
        unreachable: the latter.
        tasks_before: tasks that had come through on this node.
    """
    # The plugin names roles as `role : task` in some events and beside it in all.
    role = str(data.get("role") or "")
    task = str(data.get("task") or "").removeprefix(f"{role} : ")
    res = data.get("res") or {}
    wrong = _message(res)
    if unreachable:
        advice = (
            _first(_UNREACHABLE, wrong) or "check that the node is up and that `ssh` reaches it with this inventory"
        )
        if tasks_before:
            wrong = f"{wrong} (lost after {tasks_before} tasks)"
            advice = f"{advice}; {_AGAIN}"
        return NodeFailure(str(data.get("host")), role, task, wrong, advice, unreachable=True)
    advice = _first(_ADVICE, wrong) or f"mend what the line above says, {_AGAIN}"
    return NodeFailure(str(data.get("host")), role, task, wrong, advice)


def _message(res: Mapping[str, Any]) -> str:
    if "censored" in res:
        return "the task's output is kept secret (no_log); its name says what it does"
    items = [one for one in res.get("results") or () if isinstance(one, Mapping)]
    if failed := [one for one in items if one.get("failed") or one.get("unreachable")]:
        return "\n".join(dict.fromkeys(_message(one) for one in failed))[:_LONGEST]
    parts = [_text(res.get(name)) for name in ("msg", "stderr", "module_stderr", "exception")]
    said = [part for part in parts[:3] if part] or parts[3:]
    if not said[0] and res.get("stdout"):
        said = [_text(res["stdout"])]
    text = "\n".join(dict.fromkeys(part for part in said if part))
    return text[:_LONGEST] or "the task gave no reason"


_LONGEST = 4000


def _text(value: object) -> str:
    if isinstance(value, list):
        return "\n".join(str(item) for item in value).strip()
    return str(value).strip() if value else ""


def _first(table: tuple[tuple[str, str], ...], text: str) -> str | None:
    low = text.lower()
    return next((advice for pattern, advice in table if re.search(pattern, low)), None)


def _indented(text: str) -> str:
    return text.replace("\n", "\n         ")
