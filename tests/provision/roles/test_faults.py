"""What preflight and the reboot's guard say, each on a node that lacks one thing; and two nodes of which one fails."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from tests.provision.rig import vendor

if TYPE_CHECKING:
    from tests.provision.roles.node import Node

pytestmark = [pytest.mark.provision, pytest.mark.timeout(3600)]


def test_one_run_shows_everything_that_is_wrong(node: Node, variables: dict[str, Any]) -> None:
    wrong = {
        **variables,
        "preflight_supported_systems": [{"distribution": "Ubuntu", "version": "24.04"}],
        "preflight_gpus_min": 9,
        "preflight_disk_min_gb": 1_000_000,
        "preflight_memory_min_gb": 1_000_000,
    }
    seen = node.play("site.yml", wrong, "--tags", "preflight")
    assert (seen.code, seen.changed) == (2, 0)
    said = " ".join(seen.text.split())
    for sentence in (
        "Debian 12 is not among Ubuntu 24.04",
        "8 GPUs on the PCI bus (device ids 2bb5), 9 needed",
        "1000000 needed for the weights",
        "preflight_memory_min_gb is 1000000",
    ):
        assert sentence in said


def test_no_gpu_is_said_with_what_to_do(node: Node, variables: dict[str, Any]) -> None:
    seen = node.play("site.yml", {**variables, "preflight_sysfs": "/var/empty-sysfs"}, "--tags", "preflight")
    assert seen.code == 2
    assert "0 GPUs on the PCI bus (device ids none), 8 needed" in " ".join(seen.text.split())


def test_secure_boot_without_an_enrolled_key_stops(node: Node, variables: dict[str, Any]) -> None:
    place = "/srv/sysfs/firmware/efi/efivars"
    node.run(
        f"mkdir -p {place} && printf '\\006\\0\\0\\0\\001' >{place}/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
    )
    seen = node.play("site.yml", variables, "--tags", "preflight")
    node.run("rm -r /srv/sysfs/firmware")
    assert seen.code == 2
    assert "Secure Boot is on, and no key is named" in " ".join(seen.text.split())


def test_a_reboot_for_the_same_reason_is_refused(node: Node, variables: dict[str, Any]) -> None:
    marker = {"boot_id": "an earlier boot", "reasons": ["packages ask for it: unnamed"]}
    node.run("mkdir -p /var/lib/outrider && touch /run/reboot-required")
    node.run(f"echo '{json.dumps(marker)}' >/var/lib/outrider/reboot.json")
    seen = node.play("site.yml", {**variables, "outrider_gpu_node": False}, "--tags", "reboot")
    forbidden = node.play("site.yml", {**variables, "outrider_gpu_node": False, "host_tuning_reboot": False,
                                       "host_tuning_state_dir": "/var/lib/elsewhere"}, "--tags", "reboot")  # fmt: skip
    node.run("rm /run/reboot-required /var/lib/outrider/reboot.json")
    assert seen.code == forbidden.code == 2
    assert "was rebooted and is as before: packages ask for it: unnamed" in " ".join(seen.text.split())
    assert "host_tuning_reboot forbids it" in " ".join(forbidden.text.split())


def test_apts_lock_is_waited_for_and_no_longer_than_asked(node: Node, variables: dict[str, Any]) -> None:
    holder = (
        "import fcntl, pathlib, signal\n"
        "held = [open(f'/var/lib/{name}', 'w') for name in ('dpkg/lock-frontend', 'apt/lists/lock')]\n"
        "[fcntl.lockf(file, fcntl.LOCK_EX) for file in held]\n"
        "pathlib.Path('/run/held').touch()\n"
        "signal.pause()\n"
    )
    node.run(
        f"cat >/run/holder.py <<'EOF'\n{holder}EOF\n"
        "setsid python3 /run/holder.py >/dev/null 2>&1 & echo $! >/run/holder;"
        " until test -e /run/held; do sleep 0.1; done"
    )
    seen = node.play("site.yml", {**variables, "outrider_apt_lock_timeout_s": 3}, "--tags", "driver")
    node.run("kill $(cat /run/holder) && rm /run/held")
    assert seen.code == 2
    assert re.search("could not get lock|unable to acquire the dpkg", seen.text, re.IGNORECASE), seen.text[-4000:]
    assert node.run("find /etc/apt/sources.list.d -name '*outrider*'") == ""


def test_a_misspelt_or_wrong_value_is_named(node: Node, variables: dict[str, Any]) -> None:
    seen = node.play("site.yml", {**variables, "preflight_conflicting_driver": "remove"}, "--tags", "preflight")
    assert seen.code == 2
    assert "value of preflight_conflicting_driver must be one of: stop, migrate" in " ".join(seen.text.split())


def test_one_node_out_of_reach_does_not_stop_the_other(node: Node, variables: dict[str, Any]) -> None:
    seen = node.play("site.yml", variables, "--tags", "preflight", others={"away": "127.0.0.254"})
    assert seen.code == 4
    recap = {line.split()[0]: line for line in seen.text.splitlines() if "unreachable=" in line}
    assert "failed=0" in recap["node"]
    assert "unreachable=1" in recap["away"]


def test_of_two_nodes_the_one_that_fails_is_named_and_the_other_gets_its_driver(
    node: Node, neighbour: Node, variables: dict[str, Any]
) -> None:
    neighbour.run(f"touch /etc/stand-in/build-fails-{vendor.FIRST}")
    seen = node.provision({"broken": neighbour.address}, variables, "--tags", "preflight,driver")
    assert seen.code == 1, seen.text
    outcome, _ = json.JSONDecoder().raw_decode(seen.text)
    assert outcome["nodes"] == {"node": "ok", "broken": "failed"}
    assert "broken failed at 'nvidia_driver: " in seen.text
    assert "Bad return status for module build" in seen.text
    assert node.run("modinfo -F version nvidia") == vendor.FIRST
    assert neighbour.run("modinfo -F version nvidia", check=False) == ""
