"""The driver's role against a real apt: pins, holds, a build that fails, the renaming at 590, a closed driver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.provision.rig import vendor
from tests.provision.rig.apt_repository import AptRepository

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.provision.roles.node import Node, Seen, Vendors

pytestmark = [pytest.mark.provision, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def ubuntu(vendors: Vendors) -> Iterator[AptRepository]:
    """The vendor's repository in Ubuntu's flavour."""
    made = AptRepository(vendors.driver.directory.parent / "ubuntu", vendor.ORIGIN)
    yield made
    made.close()


@pytest.fixture(scope="module")
def wanted(node: Node, variables: dict[str, Any], ubuntu: AptRepository) -> dict[str, Any]:
    """Variables of a node with Ubuntu's names, whose driver is gone."""
    node.reset_packages()
    return {
        **variables,
        "nvidia_driver_flavour": "Ubuntu",
        "nvidia_driver_repository_uri": "file:/srv/vendors/ubuntu",
        "nvidia_driver_repository_key": "file:///srv/vendors/ubuntu/archive-keyring.gpg",
    }


def driver(node: Node, variables: dict[str, Any], *words: str, playbook: str = "site.yml") -> Seen:
    return node.play(playbook, variables, "--tags", "driver", *words)


def versions(node: Node) -> dict[str, str]:
    """Installed packages of a driver branch."""
    listed = node.run("dpkg-query -W -f '${db:Status-Abbrev} ${Package} ${Version}\\n' '*nvidia*' | grep '^.i'")
    rows = (line.split()[1:] for line in listed.splitlines())
    return {name: version for name, version in rows if version[:2] in {"58", "59"} and "pinning" not in name}


def holds(node: Node) -> set[str]:
    return set(node.run("apt-mark showhold").splitlines())


def module(node: Node) -> str:
    return node.run("modinfo -F version nvidia")


def test_an_unreachable_repository_leaves_the_nodes_apt_working(node: Node, wanted: dict[str, Any]) -> None:
    seen = driver(node, {**wanted, "nvidia_driver_repository_uri": "file:/srv/vendors/nowhere"})
    assert seen.code == 2
    assert "file:/srv/vendors/nowhere cannot be used on node" in seen.text
    node.run("apt-get update -qq")


def test_the_branch_is_installed_and_held(
    node: Node, wanted: dict[str, Any], ubuntu: AptRepository, vendors: Vendors
) -> None:
    vendors.publish(vendor.FIRST, flavour="ubuntu", to=ubuntu)
    seen = driver(node, wanted)
    assert seen.code == 0, seen.text[-4000:]
    assert module(node) == vendor.FIRST
    assert "nvidia-driver-580-open" in versions(node)
    assert set(versions(node)) <= holds(node)


def test_newer_versions_stay_away_from_the_nodes_own_upgrades(
    node: Node, wanted: dict[str, Any], ubuntu: AptRepository, vendors: Vendors
) -> None:
    vendors.publish(vendor.FIRST, vendor.SECOND, vendor.NEXT_BRANCH, flavour="ubuntu", to=ubuntu)
    before = versions(node)
    node.run("apt-get update -qq && apt-get -y -qq dist-upgrade")
    assert versions(node) == before
    policy = node.run("apt-cache policy nvidia-open libnvidia-compute")
    assert f"Candidate: {vendor.NEXT_BRANCH}" not in policy
    again = driver(node, wanted)
    assert (again.code, again.changed) == (0, 0), again.text[-4000:]


def test_a_build_that_fails_leaves_the_old_driver_working(node: Node, wanted: dict[str, Any]) -> None:
    before = versions(node)
    node.run(f"touch /etc/stand-in/build-fails-{vendor.SECOND}")
    seen = driver(node, wanted, playbook="upgrade.yml")
    assert seen.code == 2
    assert "the former packages are back and work as before" in seen.text
    assert "Bad return status for module build" in seen.text
    assert versions(node) == before
    assert (module(node), set(before) <= holds(node)) == (vendor.FIRST, True)
    assert node.run("dpkg --audit") == ""
    assert node.run("nvidia-smi --query-gpu=driver_version --format=csv,noheader | sort -u") == vendor.FIRST
    node.run("rm /etc/stand-in/build-fails-*")


def test_an_upgrade_stays_in_the_branch(node: Node, wanted: dict[str, Any]) -> None:
    seen = driver(node, wanted, playbook="upgrade.yml")
    assert seen.code == 0, seen.text[-4000:]
    assert module(node) == vendor.SECOND
    assert set(versions(node)) <= holds(node)


def test_the_next_branch_replaces_the_old_names(node: Node, wanted: dict[str, Any]) -> None:
    branch = {**wanted, "nvidia_driver_branch": "590"}
    seen = driver(node, branch, playbook="upgrade.yml")
    assert seen.code == 0, seen.text[-4000:]
    assert module(node) == vendor.NEXT_BRANCH
    assert [name for name in versions(node) if "580" in name] == []
    assert {"nvidia-open", "nvidia-driver-open", "libnvidia-compute"} <= set(versions(node)) & holds(node)
    again = driver(node, branch)
    assert (again.code, again.changed) == (0, 0), again.text[-4000:]


def test_module_and_userspace_of_two_versions_are_found(node: Node, wanted: dict[str, Any]) -> None:
    node.run("sed -i 's/^LIBRARY = .*/LIBRARY = \"590.99.99\"/' /usr/bin/nvidia-smi")
    seen = node.play("site.yml", {**wanted, "nvidia_driver_branch": "590"}, "--tags", "reboot")
    assert seen.code == 2
    assert f"Module {vendor.NEXT_BRANCH}, userspace:" in seen.text


def test_a_proprietary_driver_stops_the_run_and_leaves_with_migrate(
    node: Node, variables: dict[str, Any], vendors: Vendors
) -> None:
    node.reset_packages()
    vendors.publish_proprietary(vendor.FIRST)
    source = "deb [signed-by=/etc/apt/keyrings/old.gpg] file:/srv/vendors/driver ./"
    node.run(
        "rm -f /etc/apt/sources.list.d/outrider-nvidia-driver.sources /etc/apt/preferences.d/*nvidia*;"
        " install --mode 644 -D /srv/vendors/driver/archive-keyring.gpg /etc/apt/keyrings/old.gpg;"
        f" echo '{source}' >/etc/apt/sources.list.d/old.list; apt-get update -qq"
        " && apt-get install -y -qq cuda-drivers && rm /etc/apt/sources.list.d/old.list"
    )
    assert node.run("modinfo -F license nvidia") == "NVIDIA"
    stopped = node.play("site.yml", variables, "--tags", "preflight")
    assert stopped.code == 2
    assert "nvidia-kernel-dkms" in stopped.text
    assert "preflight_conflicting_driver to migrate" in stopped.text
    seen = driver(node, {**variables, "preflight_conflicting_driver": "migrate"})
    assert seen.code == 0, seen.text[-4000:]
    assert node.run("modinfo -F license nvidia") == "Dual MIT/GPL"
    assert "nvidia-kernel-dkms" not in versions(node)
