"""Timed measurements: what nccl-tests prints, what hangs, what containers see."""

from __future__ import annotations

import os
import select
import stat
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

TABLE = """\
# nThread 1 nGpus 2 minBytes 8192 maxBytes 134217728 step: 2(factor) warmup iters: 1 iters: 20 validation: 1
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
        8192          2048     float     sum      -1    14.21    0.58    0.58      0    13.90    0.59    0.59      0
   134217728      33554432     float     sum      -1  3100.0   43.30   43.30      7   3099.0   43.31   43.31      0
# Out of bounds values : 0 OK
"""


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def ends(pid: int) -> bool:
    """Whether a process has ended, or does so soon: after a signal it still has to get its turn."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], 30.0)[0])
    finally:
        os.close(handle)


def asked(binary: str, **changed: Any) -> dict[str, Any]:
    return {
        "binary": binary,
        "ranks": [2, 4, 8],
        "timeout_s": 30,
        "min_bytes": 8192,
        "max_bytes": 8192,
        "env": {},
        **changed,
    }


def test_rows_carry_size_latency_bus_bandwidth_and_wrong_values(node_measure: ModuleType) -> None:
    rows = node_measure.parse_all_reduce(TABLE, 2)
    assert rows[0] == {"ranks": 2, "size_bytes": 8192, "latency_us": 14.21, "bandwidth_gb_s": 0.58,
                       "timed_out": False, "error": None}  # fmt: skip
    assert rows[-1]["error"] == "7 wrong values"


def test_only_as_many_ranks_as_there_are_gpus(node_measure: ModuleType, tmp_path: Path) -> None:
    table = tmp_path / "table"
    table.write_text(TABLE)
    binary = script(tmp_path / "all_reduce_perf", f'echo "$@" >>{tmp_path}/calls\ncat {table}\n')
    entries, why = node_measure.all_reduces(asked(binary), 4, None)
    assert why is None
    assert {entry["ranks"] for entry in entries} == {2, 4}
    assert (tmp_path / "calls").read_text().splitlines()[0] == "-b 8192 -e 8192 -f 2 -g 2"


def test_a_hang_is_a_finding_and_ends_with_all_its_children(node_measure: ModuleType, tmp_path: Path) -> None:
    binary = script(tmp_path / "hangs", f"echo '# header'\ntail -f /dev/null &\necho $! >{tmp_path}/child\nwait\n")
    entries, why = node_measure.all_reduces(asked(binary, ranks=[2], timeout_s=1), 2, None)
    assert why is None
    assert [(entry["ranks"], entry["timed_out"], entry["size_bytes"]) for entry in entries] == [(2, True, None)]
    assert "no answer within 1 s" in entries[0]["error"]
    assert ends(int((tmp_path / "child").read_text()))


def test_a_failure_keeps_what_was_printed(node_measure: ModuleType, tmp_path: Path) -> None:
    binary = script(tmp_path / "fails", "echo 'NCCL failure: unhandled cuda error'\nexit 3\n")
    entries, _ = node_measure.all_reduces(asked(binary, ranks=[2]), 2, None)
    assert entries[0]["error"] == "exit code 3; NCCL failure: unhandled cuda error"
    assert entries[0]["timed_out"] is False


def test_the_profile_reaches_the_program(node_measure: ModuleType, tmp_path: Path) -> None:
    binary = script(tmp_path / "shows", 'echo "proto $NCCL_PROTO"; exit 1\n')
    env = node_measure.parse_env("# comment\nNCCL_PROTO=LL\n\nNCCL_P2P_LEVEL=SYS\n")
    entries, _ = node_measure.all_reduces(asked(binary, ranks=[2], env=env), 2, None)
    assert "proto LL" in entries[0]["error"]


def test_what_cannot_be_measured_says_why(node_measure: ModuleType, tmp_path: Path) -> None:
    assert "not on the node" in node_measure.all_reduces(asked(str(tmp_path / "absent")), 8, None)[1]
    assert "nothing to exchange" in node_measure.all_reduces(asked("/bin/true"), 1, None)[1]


def canary(
    node_measure: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, docker: str, **changed: Any
) -> Any:
    (tmp_path / "bin").mkdir()
    script(tmp_path / "bin/docker", docker)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    wanted = {"image": "some/image:1", "command": ["nvidia-smi", "--list-gpus"], "timeout_s": 20, **changed}
    return node_measure.canary(wanted, 2)


def test_the_canary_counts_gpus(node_measure: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = "echo 'GPU 0: RTX (UUID: GPU-a)'; echo 'GPU 1: RTX (UUID: GPU-b)'\n"
    assert canary(node_measure, tmp_path, monkeypatch, said)["ok"] is True


def test_a_canary_that_sees_too_few_fails(
    node_measure: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = canary(node_measure, tmp_path, monkeypatch, "echo 'GPU 0: RTX (UUID: GPU-a)'\n")
    assert (seen["ok"], seen["gpus_seen"]) == (False, 1)


def test_a_canary_that_hangs_is_ended(
    node_measure: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = canary(node_measure, tmp_path, monkeypatch, "exec tail -f /dev/null\n", timeout_s=1)
    assert (seen["ok"], seen["timed_out"]) == (False, True)


def test_the_canary_has_the_flags_of_production(node_measure: ModuleType) -> None:
    argv = node_measure.canary_argv({"image": "some/image:1", "command": ["nvidia-smi", "--list-gpus"]})
    assert argv[argv.index("--device") + 1] == "nvidia.com/gpu=all"
    assert "--privileged" not in argv
    assert argv[argv.index("--entrypoint") + 1 :] == ["nvidia-smi", "some/image:1", "--list-gpus"]


def test_the_disk_is_read_without_writing(node_measure: ModuleType, tmp_path: Path) -> None:
    assert node_measure.disk_speed(tmp_path, 1000)[0] is None
    file = tmp_path / "weights.safetensors"
    with file.open("wb") as out:
        out.truncate(1 << 28)
    speed, why = node_measure.disk_speed(tmp_path, 1 << 26)
    assert why is None
    assert speed > 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["weights.safetensors"]


def test_links_are_noted_at_their_fastest(node_measure: ModuleType, node_facts: ModuleType, tmp_path: Path) -> None:
    gpu = {"pci_address": "0000:11:00.0", "pcie_generation": 1, "pcie_width": 16}
    place = tmp_path / "bus/pci/devices/0000:11:00.0"
    place.mkdir(parents=True)
    (place / "current_link_speed").write_text("32.0 GT/s PCIe\n")
    (place / "current_link_width").write_text("8\n")
    node_measure.run_limited(["true"], 10, during=node_measure.watch_links(tmp_path, [gpu]))
    assert gpu == {"pci_address": "0000:11:00.0", "pcie_generation": 5, "pcie_width": 16}
