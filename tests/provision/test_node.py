"""A virtual node from bare to ready, upgraded, and taken back. No real driver is in this: see rig/vendor.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.provision.conftest import describe
from tests.provision.rig import vendor

if TYPE_CHECKING:
    from tests.provision.conftest import Site

pytestmark = [pytest.mark.provision, pytest.mark.timeout(3600)]

# One story in order: each test goes on with the node as the one before left it. What is marked slow may be left out.


@pytest.mark.slow
def test_faults_of_a_bare_node_are_all_named_before_anything_is_changed(site: Site) -> None:
    systems = [{"distribution": "Ubuntu", "version": "24.04"}]
    outcome = site(preflight_gpus_min=9, outrider_weights_gb=601, preflight_supported_systems=systems)
    assert outcome.code == 1, outcome.said
    assert "node1 failed at 'preflight: Check that'" in outcome.said
    for fault in ("Debian 12 is not among Ubuntu 24.04", "8 GPUs on the PCI bus", "601 needed for the weights"):
        assert fault in outcome.said
    assert outcome.changed == 0
    assert "outrider" not in site.node.run("ls /etc/apt/sources.list.d /etc/apt/preferences.d").stdout


@pytest.mark.slow
def test_a_dry_run_on_a_fresh_node_shows_what_would_change_and_changes_nothing(site: Site) -> None:
    site.node.run("touch /run/mark && sleep 1")
    outcome = site.make("provision", "CHECK=1")
    assert outcome.code == 0, outcome.said
    would = outcome.said.split("node1 would be changed by")[1]
    for task in ("host_tuning: Add to the kernel's command line", "nvidia_driver: Pin the branch"):
        assert task in would
    difference = (outcome.directory / "artifacts/ansible/stdout").read_text()
    assert "iommu=off" in difference
    assert "Would install nvidia-driver-pinning-580, nvidia-open" in difference
    newer = "find /etc /usr /boot /var/lib/dpkg /var/lib/apt /var/lib/outrider -newer /run/mark 2>/dev/null"
    assert site.node.run(newer, check=False).stdout == ""


@pytest.mark.slow
def test_a_node_without_gpus_whose_firmware_wants_signatures(site: Site) -> None:
    secure_boot = "/opt/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
    site.node.run("mkdir -p /opt/sys/bus/pci/devices")
    site.node.write(secure_boot, "\x06\0\0\0\x01")
    outcome = site("--tags", "preflight", preflight_sysfs="/opt/sys")
    assert outcome.code == 1, outcome.said
    for fault in ("0 GPUs on the PCI bus", "Secure Boot is on"):
        assert fault in outcome.said


@pytest.mark.slow
def test_a_repository_that_is_not_reached_is_named(site: Site) -> None:
    outcome = site("--tags", "driver", nvidia_driver_repository_uri="http://10.0.2.2:1/none")
    assert outcome.code == 1, outcome.said
    assert "a package repository cannot be reached from the node" in outcome.said


@pytest.mark.slow
def test_a_proprietary_driver_that_is_there_stops_the_run(site: Site) -> None:
    played = site.repositories
    site.node.write("/usr/share/keyrings/vendor.asc", played.debian.armoured_key())
    source = f"deb [signed-by=/usr/share/keyrings/vendor.asc] {played.uri('debian')} ./\n"
    site.node.write("/etc/apt/sources.list.d/vendor.list", source)
    site.node.run("apt-get update -qq && apt-get install -y -qq cuda-drivers", timeout=240)
    outcome = site("--tags", "preflight,driver")
    kept = site.node.run("dpkg-query -W -f '${Version}' nvidia-kernel-dkms").stdout
    site.node.run("apt-get purge -y -qq cuda-drivers nvidia-kernel-dkms", timeout=240)
    site.node.run("rm /etc/apt/sources.list.d/vendor.list && apt-get update -qq")
    assert outcome.code == 1, outcome.said
    assert "node1 failed at 'preflight: Check that'" in outcome.said
    assert "A proprietary NVIDIA driver is there (nvidia-kernel-dkms)" in outcome.said
    assert "preflight_conflicting_driver to migrate" in outcome.said
    assert kept == f"{vendor.FIRST}-1"


@pytest.mark.slow
def test_a_held_lock_of_apt_is_named(site: Site) -> None:
    hold = (
        "import fcntl, signal; files = [open(f'/var/lib/{name}', 'w') for name in ('dpkg/lock-frontend', "
        "'apt/lists/lock')]; [fcntl.lockf(file, fcntl.LOCK_EX) for file in files]; print(flush=True); signal.pause()"
    )
    with site.node.holding("python3", "-c", hold):
        outcome = site("--tags", "driver", outrider_apt_lock_timeout_s=3)
    assert outcome.code == 1, outcome.said
    assert "another package manager holds apt's lock" in outcome.said


@pytest.mark.slow
def test_a_connection_that_is_lost_on_the_way_is_called_that(site: Site) -> None:
    impatient = "-o ControlMaster=no -o ServerAliveInterval=2 -o ServerAliveCountMax=2 -o ConnectTimeout=3"
    process = site.begin("--tags", "host", ansible_ssh_args=impatient, ansible_ssh_retries=0)
    said = ""
    assert process.stdout is not None
    for line in process.stdout:
        said += line
        if said.count("  host_tuning\n") == 2:  # first it has preflight read what the node is
            break
    site.node.cut_network()
    outcome = site.end(process, said)
    site.node.mend_network()
    assert outcome.code == 1, outcome.said
    assert "node1 not reachable over SSH at 'host_tuning" in outcome.said
    assert "lost after" in outcome.said
    # What follows provisions the node that this one left half done.


def test_a_bare_node_becomes_ready_with_one_reboot(site: Site) -> None:
    boot = site.node.run("cat /proc/sys/kernel/random/boot_id").stdout
    outcome = site()
    assert outcome.code in {0, 3}, outcome.said
    assert site.node.run("cat /proc/sys/kernel/random/boot_id").stdout != boot
    assert "iommu=off" in site.node.run("cat /proc/cmdline").stdout
    report = outcome.report
    assert report["driver"]["version"] == report["driver"]["userspace_version"] == vendor.FIRST
    assert report["driver"]["open_modules"] is True
    assert len(report["gpus"]) == len(report["pci_gpus"]) == 8
    assert {one["ranks"] for one in report["all_reduce"]} == {2, 4, 8}
    assert report["container"]["canary_ok"] is True
    assert (outcome.directory / "report.html").is_file()


def test_the_second_run_changes_nothing(site: Site) -> None:
    outcome = site()
    assert outcome.code in {0, 3}, outcome.said
    assert outcome.changes() == []
    assert outcome.changed == 0


@pytest.mark.slow
def test_libraries_of_another_version_than_the_module_are_named(site: Site) -> None:
    site.node.run(f"sed -i.kept s/{vendor.FIRST}/{vendor.SECOND}/ /usr/bin/nvidia-smi")
    outcome = site("report")
    site.node.run("mv /usr/bin/nvidia-smi.kept /usr/bin/nvidia-smi")
    assert outcome.code == 1, outcome.said
    assert "NODE024" in outcome.said
    assert "version mismatch" in outcome.said


@pytest.mark.slow
def test_unattended_upgrades_leave_the_driver_alone(site: Site) -> None:
    site.repositories.release(vendor.SECOND, vendor.NEXT_BRANCH)
    site.node.write("/etc/apt/apt.conf.d/99-all-origins", 'Unattended-Upgrade::Origins-Pattern { "origin=*"; };\n')
    site.node.run("apt-get update -qq")
    site.node.run("unattended-upgrade", timeout=240)
    installed = site.node.run("dpkg-query -W 'nvidia-*' 'libnvidia-*' 'libcuda*'", check=False).stdout
    assert f"nvidia-open\t{vendor.FIRST}-1" in installed
    assert vendor.SECOND not in installed
    assert vendor.NEXT_BRANCH not in installed


@pytest.mark.slow
def test_an_upgrade_whose_module_does_not_build_leaves_the_old_driver_working(site: Site) -> None:
    site.node.write(f"/etc/stand-in/build-fails-{vendor.SECOND}", "")
    outcome = site("upgrade", "--tags", "driver")
    site.node.run(f"rm /etc/stand-in/build-fails-{vendor.SECOND}")
    assert outcome.code == 1, outcome.said
    assert "Bad return status for module build" in outcome.said
    assert (
        site.node.run("nvidia-smi --query-gpu=driver_version --format=csv,noheader").stdout.split()[0] == vendor.FIRST
    )
    assert site.node.run("modinfo -F version nvidia").stdout.strip() == vendor.FIRST


@pytest.mark.slow
def test_an_upgrade_stays_inside_the_branch_and_reboots_into_the_new_module(site: Site) -> None:
    outcome = site("upgrade")
    assert outcome.code in {0, 3}, outcome.said
    driver = outcome.report["driver"]
    assert driver["loaded_version"] == driver["userspace_version"] == vendor.SECOND


@pytest.mark.slow
def test_peer_transfers_that_hang_are_an_error_although_the_driver_calls_them_fine(site: Site) -> None:
    describe(site.node, hang_at_ranks=[4])
    outcome = site("report", "--stack", "kimi-k2.5-rtx6000x8")
    describe(site.node)
    assert outcome.code == 1
    assert "NODE007" in outcome.said
    assert outcome.report["p2p"] is True
    assert {one["ranks"] for one in outcome.report["all_reduce"] if one["timed_out"]} == {4}


def test_another_branch_comes_only_on_request(site: Site) -> None:
    site.repositories.release(vendor.SECOND, vendor.NEXT_BRANCH)
    outcome = site("upgrade", "--set", "nvidia_driver_branch=590")
    assert outcome.code in {0, 3}, outcome.said
    assert outcome.report["driver"]["loaded_version"] == vendor.NEXT_BRANCH


def test_reset_takes_back_what_was_set_up(site: Site) -> None:
    outcome = site("reset", "--yes", "--set", "nvidia_driver_remove=true")
    assert outcome.code == 0, outcome.said
    assert site.node.run("which nvidia-smi", check=False).returncode == 1
    assert site.node.run("apt-mark showhold").stdout == ""
    kept = site.node.run("ls /etc/apt/sources.list.d /etc/apt/preferences.d /etc/default/grub.d", check=False).stdout
    assert "outrider" not in kept
