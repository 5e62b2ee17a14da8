"""site.yml on a node that systemd booted: what it sets up, nothing the second time, and what reset.yml takes back."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.provision.rig import vendor

if TYPE_CHECKING:
    from tests.provision.roles.node import Node, Seen

pytestmark = [pytest.mark.provision, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def first(node: Node, variables: dict[str, Any]) -> Seen:
    return node.play("site.yml", variables)


def test_check_mode_on_a_bare_node_shows_what_would_be_done(node: Node, variables: dict[str, Any]) -> None:
    seen = node.play("site.yml", variables, "--check", "--diff")
    assert seen.code == 0, seen.text[-4000:]
    assert "Would install nvidia-driver-pinning-580, nvidia-open" in seen.text
    assert "+DefaultLimitMEMLOCK=infinity" in seen.text
    assert node.run("find /etc /usr/local/sbin /var/lib/outrider -name '*outrider*' 2>/dev/null", check=False) == ""
    assert node.report()["pci_gpus"][7]["id"] == "2bb5"


def test_a_bare_node_becomes_ready(first: Seen) -> None:
    assert first.code == 0, first.text[-6000:]
    assert first.changed
    assert first.changed > 20


def test_a_second_run_changes_nothing(node: Node, first: Seen, variables: dict[str, Any]) -> None:
    seen = node.play("site.yml", variables)
    assert (seen.code, seen.changed) == (0, 0), seen.text[-6000:]


def test_every_installed_driver_package_is_held(node: Node, first: Seen) -> None:
    installed = node.run("dpkg-query -W -f '${Package} ${Version}\\n' | awk '$2 ~ /^580/ {print $1}'").splitlines()
    assert set(installed) <= set(node.run("apt-mark showhold").splitlines())
    assert "nvidia-kernel-open-dkms" in installed


def test_services_get_locked_memory_and_open_files(node: Node, first: Seen) -> None:
    shown = node.run("systemctl show --property DefaultLimitMEMLOCK,DefaultLimitNOFILE")
    assert set(shown.splitlines()) == {"DefaultLimitMEMLOCK=infinity", "DefaultLimitNOFILE=1048576"}


def test_the_boot_unit_ran(node: Node, first: Seen) -> None:
    assert (
        node.run("systemctl is-active outrider-host-tuning && systemctl is-enabled outrider-host-tuning")
        == "active\nenabled"
    )


def test_the_engine_has_one_configuration(node: Node, first: Seen) -> None:
    options = json.loads(node.run("cat /etc/docker/daemon.json"))
    assert options["features"] == {"cdi": True}
    assert options["live-restore"] is True


def test_gpus_are_described_to_containers_by_the_toolkits_own_unit(node: Node, first: Seen) -> None:
    assert json.loads(node.run("cat /var/run/cdi/nvidia.yaml"))["kind"] == "nvidia.com/gpu"
    assert node.run("test ! -e /etc/systemd/system/outrider-cdi-refresh.service && echo none") == "none"
    assert node.run("systemctl is-enabled nvidia-cdi-refresh") == "enabled"


def test_units_are_those_of_the_stack_and_confined(node: Node, first: Seen) -> None:
    text = node.run("cat /etc/systemd/system/outrider-smollm2-cpu-baseline.service")
    assert "X-Outrider-Name=smollm2-cpu/baseline" in text
    assert node.run("systemd-analyze verify outrider-smollm2-cpu-baseline.service 2>&1; systemctl is-enabled "
                    "outrider-smollm2-cpu-baseline.service", check=False).endswith("disabled")  # fmt: skip
    shown = node.run("systemctl show --property EnvironmentFiles outrider-smollm2-cpu-ngram.service")
    assert "/etc/outrider/outrider.env" in shown


def test_weights_lie_verified_in_the_store(node: Node, first: Seen) -> None:
    listed = json.loads(node.run("cat /var/lib/outrider/models/org/model/outrider-manifest.json"))
    assert "smollm2-cpu.yaml" in listed["files"]


def test_the_report_has_what_was_measured_and_what_hung(node: Node, first: Seen) -> None:
    report = node.report()
    assert report["driver"]["version"] == report["driver"]["userspace_version"] == vendor.FIRST
    assert report["driver"]["open_modules"] is True
    assert len(report["gpus"]) == 8
    assert report["gpus"][0]["pcie_width"] == 16
    assert report["p2p"] is True
    assert report["container"]["runtime"] == "cdi"
    timed = {entry["ranks"] for entry in report["all_reduce"] if not entry["timed_out"]}
    hung = {entry["ranks"] for entry in report["all_reduce"] if entry["timed_out"]}
    assert (timed, hung) == ({2, 4}, {8})
    assert report["all_reduce_env"]["NCCL_PROTO"] == "LL"
    assert "canary" in report["unmeasured"]
    assert {p["name"] for p in report["packages"] if p["held"]} >= {
        "nvidia-open",
        "libnccl2",
        "nvidia-container-toolkit",
    }


def test_permissions_of_the_system_are_as_before(node: Node, first: Seen) -> None:
    assert (
        node.run("stat -c '%a %U' /etc /etc/apt /etc/systemd/system /usr/local/sbin /var/lib").splitlines()
        == ["755 root"] * 5
    )


def test_reset_asks_first(node: Node, first: Seen, variables: dict[str, Any]) -> None:
    seen = node.play("reset.yml", variables)
    assert seen.code != 0
    assert "-e outrider_reset=true" in seen.text


def test_reset_takes_everything_back_but_weights_and_driver(node: Node, first: Seen, variables: dict[str, Any]) -> None:
    seen = node.play("reset.yml", variables, "--extra-vars", "outrider_reset=true")
    assert seen.code == 0, seen.text[-4000:]
    left = node.run(
        "find /etc -name '*outrider*' -not -path '*/docker/*'; ls /etc/apt/preferences.d/*outrider* 2>/dev/null",
        check=False,
    )
    assert left == ""
    assert node.run("apt-mark showhold") == ""
    assert node.run("ls /var/lib/outrider/models/org/model/smollm2-cpu.yaml")
    assert "nvidia-open" in node.run("dpkg-query -W -f '${Package}\\n'").splitlines()
    again = node.play("reset.yml", variables, "--extra-vars", "outrider_reset=true")
    assert (again.code, again.changed) == (0, 0), again.text[-4000:]
