"""What is read from a node: sysfs trees, files of /proc and tools' words, made here."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import pytest

from outrider.preflight.facts.node import read_node_facts

ROOT = Path(__file__).resolve().parents[3]
CSV = """\
0, GPU-aa, NVIDIA RTX PRO 6000 Blackwell Server Edition, 97887, 12.0, 00000000:11:00.0, Enabled, 580.95.05
1, GPU-bb, NVIDIA RTX PRO 6000 Blackwell Server Edition, 97887, 12.0, 00000000:21:00.0, Enabled, 580.95.05
"""
TOPOLOGY = """\
\t\x1b[4mGPU0\tGPU1\tGPU2\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m
GPU0\t X \tPHB\tSYS\tNODE\t0-63\t0\t\tN/A
GPU1\tPHB\t X \tSYS\tNODE\t0-63\t0\t\tN/A
GPU2\tSYS\tSYS\t X \tSYS\t64-127\t1\t\tN/A
NIC0\tNODE\tNODE\tSYS\t X

Legend:
"""


def device(sysfs: Path, address: str, **files: str | bytes) -> Path:
    place = sysfs / "bus/pci/devices" / address
    place.mkdir(parents=True)
    for name, content in files.items():
        place.joinpath(name).write_bytes(content if isinstance(content, bytes) else f"{content}\n".encode())
    return place


def config(control: int, *, before: bool = False) -> bytes:
    """Configuration space whose extended capabilities hold access control services, perhaps behind another one."""
    space = bytearray(4096)
    at = 0x100
    if before:
        space[0x100:0x104] = (0x0001 | 1 << 16 | 0x148 << 20).to_bytes(4, "little")
        at = 0x148
    space[at : at + 4] = (0x000D | 1 << 16).to_bytes(4, "little")
    space[at + 6 : at + 8] = control.to_bytes(2, "little")
    return bytes(space)


def test_a_file_that_goes_while_sizes_are_read_is_passed_over(node_kernel: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "weights").write_bytes(b"x" * 200_000_000)
    assert node_kernel.used_gb(tmp_path) == 0.2
    assert node_kernel.used_gb(tmp_path / "absent") == 0
    # Listing a process's descriptors lists that of the listing, which is closed by the time it is looked at.
    assert node_kernel.used_gb("/proc/self/fdinfo") == 0


def test_gpus_switches_and_drivers_are_found_on_the_bus(node_kernel: ModuleType, tmp_path: Path) -> None:
    gpu = device(tmp_path, "0000:11:00.0", vendor="0x10de", device="0x2bb5", **{"class": "0x030200"})
    (tmp_path / "drivers/nvidia").mkdir(parents=True)
    (gpu / "driver").symlink_to(tmp_path / "drivers/nvidia")
    device(tmp_path, "0000:12:00.0", vendor="0x10de", device="0x22e8", **{"class": "0x040300"})
    device(tmp_path, "0000:13:00.0", vendor="0x10de", device="0x22a3", **{"class": "0x068000"})
    device(tmp_path, "0000:14:00.0", vendor="0x8086", device="0x1234", **{"class": "0x030000"})
    found = node_kernel.read_pci(tmp_path)
    assert found["pci_gpus"] == [{"address": "0000:11:00.0", "id": "2bb5", "driver": "nvidia"}]
    assert found["nvswitches"] == 1


@pytest.mark.parametrize("before", [False, True])
def test_a_bridge_that_redirects_peer_traffic_is_named(node_kernel: ModuleType, tmp_path: Path, before: bool) -> None:
    device(tmp_path, "0000:00:01.0", **{"class": "0x060400"}, vendor="0x1022", config=config(0x1D, before=before))
    device(tmp_path, "0000:00:02.0", **{"class": "0x060400"}, vendor="0x1022", config=config(0, before=before))
    found = node_kernel.read_pci(tmp_path)
    assert (found["acs"], found["acs_ports"]) == (True, ["0000:00:01.0"])


def test_without_root_the_state_of_bridges_is_unknown(node_kernel: ModuleType, tmp_path: Path) -> None:
    device(tmp_path, "0000:00:01.0", **{"class": "0x060400"}, vendor="0x1022", config=config(0x1D)[:64])
    assert node_kernel.read_pci(tmp_path)["acs"] is None


def test_a_loop_of_capabilities_ends(node_kernel: ModuleType) -> None:
    space = bytearray(4096)
    space[0x100:0x104] = (0x0001 | 1 << 16 | 0x100 << 20).to_bytes(4, "little")
    assert node_kernel.acs_control(bytes(space)) is None


@pytest.mark.parametrize(
    ("types", "state"), [([], "off"), (["identity", "identity"], "pt"), (["DMA-FQ", "identity"], "on"), (["DMA"], "on")]
)
def test_iommu_by_groups(node_kernel: ModuleType, tmp_path: Path, types: list[str], state: str) -> None:
    for index, kind in enumerate(types):
        group = tmp_path / "kernel/iommu_groups" / str(index)
        group.mkdir(parents=True)
        (group / "type").write_text(f"{kind}\n")
    assert node_kernel.read_iommu(tmp_path) == state


@pytest.mark.parametrize(("byte", "on"), [(b"\x06\0\0\0\x01", True), (b"\x06\0\0\0\x00", False)])
def test_secure_boot_by_the_firmware_variable(node_kernel: ModuleType, tmp_path: Path, byte: bytes, on: bool) -> None:
    place = tmp_path / "firmware/efi/efivars"
    place.mkdir(parents=True)
    (place / "SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c").write_bytes(byte)
    assert node_kernel.read_secure_boot(tmp_path)["secure_boot"] is on


def test_without_the_variable_secure_boot_is_unknown_and_without_firmware_off(
    node_kernel: ModuleType, tmp_path: Path
) -> None:
    assert node_kernel.read_secure_boot(tmp_path)["secure_boot"] is False
    (tmp_path / "firmware/efi").mkdir(parents=True)
    assert node_kernel.read_secure_boot(tmp_path)["secure_boot"] is None


def test_gpus_from_the_tools_table(node_facts: ModuleType) -> None:
    first = node_facts.parse_gpus(CSV)[0]
    assert first["name"] == "NVIDIA RTX PRO 6000 Blackwell Server Edition"
    assert (first["vram_gib"], first["compute_capability"], first["pci_address"]) == (95.6, "12.0", "0000:11:00.0")


def test_words_that_are_no_numbers_are_unknown(node_facts: ModuleType) -> None:
    gpu = node_facts.parse_gpus("0, GPU-aa, Some GPU, [N/A], [N/A], 00000000:11:00.0, [N/A], 580.95.05")[0]
    assert gpu["vram_gib"] is None
    assert gpu["compute_capability"] is None
    assert node_facts.parse_gpus("No devices were found") == []


def test_topology_is_cut_to_gpus(node_facts: ModuleType) -> None:
    assert node_facts.parse_matrix(TOPOLOGY) == [["X", "PHB", "SYS"], ["PHB", "X", "SYS"], ["SYS", "SYS", "X"]]


def test_peers_need_every_pair(node_facts: ModuleType) -> None:
    assert node_facts.all_peers([["X", "OK"], ["OK", "X"]]) is True
    assert node_facts.all_peers([["X", "OK"], ["CNS", "X"]]) is False
    assert node_facts.all_peers([["X"]]) is None


def test_links_by_speed_and_width(node_facts: ModuleType, tmp_path: Path) -> None:
    device(
        tmp_path, "0000:11:00.0", current_link_speed="2.5 GT/s PCIe", max_link_speed="32.0 GT/s PCIe",
        current_link_width="8", max_link_width="16", numa_node="1",
    )  # fmt: skip
    assert node_facts.link_of(tmp_path, "0000:11:00.0") == {
        "numa_node": 1, "pcie_generation": 1, "pcie_generation_max": 5, "pcie_width": 8, "pcie_width_max": 16,
    }  # fmt: skip
    assert node_facts.link_of(tmp_path, "0000:99:00.0")["pcie_generation"] is None


def test_packages_that_matter_with_their_holds(node_facts: ModuleType) -> None:
    text = "hi \tnvidia-open\t580.95.05-1\nii \tbash\t5.2\nrc \tnvidia-driver\t535\nii \tlibnccl2\t2.28.3-1+cuda13.0\n"
    assert node_facts.parse_packages(text) == [
        {"name": "nvidia-open", "version": "580.95.05-1", "held": True},
        {"name": "libnccl2", "version": "2.28.3-1+cuda13.0", "held": False},
    ]


def test_cpuinfo(node_kernel: ModuleType) -> None:
    thread = (
        "processor\t: {0}\nvendor_id\t: AuthenticAMD\nmodel name\t: AMD EPYC 9575F\n"
        "physical id\t: {1}\ncore id\t: {2}\n\n"
    )
    text = "".join(thread.format(index, index // 4, index % 2) for index in range(8))
    found = node_kernel.parse_cpuinfo(text)
    assert found == {"vendor": "AuthenticAMD", "model": "AMD EPYC 9575F", "sockets": 2, "cores": 4, "threads": 8}


def test_the_report_of_this_machine_has_every_field_of_the_sample(node_facts: ModuleType, tmp_path: Path) -> None:
    report = node_facts.read_node(Path("/sys"), Path("/proc"), tmp_path)
    sample = json.loads((ROOT / "tests/data/node_report_flagship.json").read_text())
    measured = {"all_reduce_env"}
    assert set(report) == set(sample) - measured
    assert set(report["disk"]) == set(sample["disk"])


def test_what_is_described_is_what_is_written(node_facts: ModuleType) -> None:
    sample = json.loads((ROOT / "tests/data/node_report_flagship.json").read_text())
    for name in sample:
        assert name in (node_facts.__doc__ or ""), name


def test_preflight_reads_the_report(node_facts: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "node.json"
    path.write_text(json.dumps(node_facts.read_node(Path("/sys"), Path("/proc"), tmp_path)))
    assert read_node_facts(path).shm_gib
    facts = read_node_facts(ROOT / "tests/data/node_report_flagship.json")
    assert facts.all_reduce is not None
    assert facts.all_reduce[-1].timed_out


def test_a_tool_that_hangs_is_given_up(node_kernel: ModuleType) -> None:
    assert node_kernel.run("cat", "/dev/zero", timeout_s=0.2)[2] == -1
    assert node_kernel.run("no-such-tool-here")[2] is None
