"""Node reports: read, compared with a stack, shown."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from outrider.provision.errors import ProvisionError
from outrider.provision.node_report import examine, exit_code, read_node_report
from outrider.provision.page import write_page
from outrider.stack import find_stack

REPORT: dict[str, Any] = {
    "schema": 1,
    "taken_at": "2026-01-02T03:04:05+00:00",
    "hostname": "box",
    "gpus": [{"index": 0, "name": "NVIDIA <b>RTX</b> PRO 6000 Blackwell", "vram_gib": 95.6, "pcie_width": 8,
              "pcie_width_max": 16, "pcie_generation": 5, "pcie_generation_max": 5}],
    "driver": {"version": "580.95.05", "userspace_version": "580.95.05", "open_modules": True, "persistence": True},
    "topology": [["X", "SYS"], ["SYS", "X"]],
    "p2p_matrix": [["X", "CNS"], ["CNS", "X"]],
    "all_reduce": [
        {"ranks": 2, "size_bytes": 8192, "latency_us": 9.0, "bandwidth_gb_s": 0.9},
        {"ranks": 2, "size_bytes": 1048576, "latency_us": 60.0, "bandwidth_gb_s": 17.5},
        {"ranks": 4, "timed_out": True},
    ],
}  # fmt: skip


def written(directory: Path, **changes: Any) -> Path:
    file = directory / "node1.json"
    file.write_text(json.dumps(REPORT | changes))
    return file


def test_an_empty_report_is_unknown_and_not_fine(tmp_path: Path) -> None:
    file = tmp_path / "node1.json"
    file.write_text("{}")
    node = examine(file, find_stack("kimi-k2.5-rtx6000x8"))
    found = {one.code: one.evidence for one in node.findings}
    assert "gpus" in found["NODE001"]
    assert found["NODE031"] == "schema None, known 1"


def test_a_report_is_compared_with_the_stack_that_is_named(tmp_path: Path) -> None:
    file = written(tmp_path)
    alone, compared = examine(file, None), examine(file, find_stack("kimi-k2.5-rtx6000x8"))
    assert alone.findings == ()
    assert {"NODE002", "NODE007", "NODE021"} <= {one.code for one in compared.findings}
    assert (exit_code([alone]), exit_code([alone, compared])) == (0, 1)


def test_fields_that_are_not_known_are_named(tmp_path: Path) -> None:
    assert read_node_report(written(tmp_path, fans=3, colour="red"))[1] == ("colour", "fans")


@pytest.mark.parametrize(
    ("content", "said"),
    [("{", "no JSON"), ('{"gpus": 8}', "gpus"), ('{"iommu": "maybe"}', "iommu"), ("[]", "no node report")],
)
def test_a_malformed_report_names_its_mistake(tmp_path: Path, content: str, said: str) -> None:
    file = tmp_path / "node1.json"
    file.write_text(content)
    with pytest.raises(ProvisionError, match=said):
        read_node_report(file)


def page(directory: Path, **changes: Any) -> str:
    nodes = [examine(written(directory, **changes), find_stack("kimi-k2.5-rtx6000x8"))]
    file = write_page(directory / "r.html", nodes, stack=None, title="run", silent={"node2": "SSH: no route"})
    return re.sub(r"<script>.*?</script>", "", file.read_text(), flags=re.DOTALL)


def test_the_page_shows_time_outs_narrow_links_and_silent_nodes(tmp_path: Path) -> None:
    text = page(tmp_path)
    assert "<b>4 GPUs: timed out.</b>" in text
    assert '<td class="slow">Gen5 x8</td><td>Gen5 x16</td>' in text
    assert "no report: SSH: no route" in text
    assert "2 nodes" in text


def test_what_a_node_says_is_text_and_never_markup(tmp_path: Path) -> None:
    assert "<b>RTX</b>" not in page(tmp_path)


def test_a_node_without_a_driver_still_has_a_page(tmp_path: Path) -> None:
    text = page(tmp_path, gpus=None, driver=None, all_reduce=[], topology=[], p2p_matrix=[],
                pci_gpus=[{"address": "0000:01:00.0", "id": "2bb5", "driver": "nouveau"}])  # fmt: skip
    assert "1 GPU on the bus (0000:01:00.0 2bb5, nouveau); the driver shows none." in text


def test_a_link_that_nobody_knows_is_unknown_and_no_node_is_none(tmp_path: Path) -> None:
    text = page(tmp_path, gpus=[{"index": 0, "name": "RTX", "numa_node": -1}])
    assert "<td>unknown</td><td>unknown</td></tr>" in text
    assert "<td>none</td>" in text
    assert "Genunknown" not in text
