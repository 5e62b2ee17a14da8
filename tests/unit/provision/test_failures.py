"""Failed tasks as a cause and a next step."""

from __future__ import annotations

from typing import Any

import pytest

from outrider.provision.failures import failure_of


def failure(res: dict[str, Any], *, unreachable: bool = False, tasks_before: int = 0) -> str:
    data = {"host": "node1", "role": "nvidia_driver", "task": "nvidia_driver : Install", "res": res}
    return str(failure_of(data, unreachable=unreachable, tasks_before=tasks_before))


@pytest.mark.parametrize(
    ("message", "advice"),
    [
        (
            "E: Could not get lock /var/lib/dpkg/lock-frontend. Held by process 7",
            "another package manager",
        ),
        ("E: Failed to fetch http://repo/Packages  Connection refused", "repository cannot be reached"),
        ("The following signatures couldn't be verified: NO_PUBKEY 12", "signature"),
        ("write error: No space left on device", "free disk space"),
        ("Missing sudo password", "--become-password-file"),
        ("Attempting to decrypt but no vault secrets found", "--vault-password-file"),
        ("Timed out waiting for last boot time check", "console"),
        ("something of its own", "mend what the line above says"),
    ],
)
def test_known_messages_come_with_advice(message: str, advice: str) -> None:
    assert advice in failure({"msg": message})


@pytest.mark.parametrize(
    ("message", "advice"),
    [
        ("Host key verification failed.", "known_hosts"),
        ("root@node1: Permission denied (publickey).", "ansible_ssh_private_key_file"),
        ("Could not resolve hostname node1", "ansible_host"),
        ("Connection timed out", "check that the node is up"),
    ],
)
def test_a_node_that_is_not_reached_is_called_that(message: str, advice: str) -> None:
    text = failure({"msg": message}, unreachable=True)
    assert text.startswith("node1 not reachable over SSH at 'nvidia_driver: Install'")
    assert advice in text


def test_a_connection_that_is_lost_says_how_far_it_came() -> None:
    assert "lost after 12 tasks" in failure({"msg": "timed out"}, unreachable=True, tasks_before=12)


def test_what_is_secret_stays_secret() -> None:
    assert "no_log" in failure({"censored": "the output has been hidden"})


def test_all_items_that_failed_are_the_reason() -> None:
    results = [{"msg": "fine"}, {"failed": True, "msg": "only 4 GPUs"}, {"failed": True, "msg": "disk too small"}]
    text = failure({"msg": "One or more items failed", "results": results})
    assert "wrong: only 4 GPUs\n         disk too small" in text
    assert "fine" not in text


def test_a_command_that_only_wrote_is_quoted() -> None:
    assert "line one" in failure({"msg": "", "stdout": "line one"})
