"""The node report against the stack."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.preflight import checkpoints as made
from tests.unit.preflight.checkpoints import codes

from outrider.errors import OutriderError
from outrider.preflight import NodeFacts, read_node_facts
from outrider.preflight.checks.node import check_node
from outrider.preflight.checks.node_host import check_form
from outrider.preflight.facts.runner import compute_capability
from outrider.stack import find_stack

if TYPE_CHECKING:
    from outrider.stack import Stack

# The form that preflight reads; everything in it may be left out.
SAMPLE: dict[str, Any] = {
    "gpus": [
        {
            "name": "NVIDIA RTX PRO 6000 Blackwell Server Edition",
            "vram_gib": 95.6,
            "compute_capability": "12.0",
            "pcie_generation": 5,
            "pcie_width": 16,
        }
    ]
    * 8,
    "driver": {"version": "580.95.05", "userspace_version": "580.95.05", "open_modules": True},
    "secure_boot": False,
    "iommu": "off",
    "acs": False,
    "p2p": True,
    "all_reduce": [
        {"ranks": 2, "size_bytes": 16384, "latency_us": 11.0},
        {"ranks": 4, "size_bytes": 16384, "latency_us": 22.0},
        {"ranks": 8, "size_bytes": 134217728, "latency_us": 5100.0, "bandwidth_gb_s": 41.0},
    ],
    "container": {"runtime": "cdi", "canary_ok": True},
    "disk": {"read_gb_s": 6.5, "free_gb": 1800.0},
    "shm_gib": 64.0,
    "memlock_kib": -1,
    "open_files": 1048576,
    "memory_gib": 512.0,
}


def flagship(**changes: Any) -> Stack:
    stack = find_stack("kimi-k2.5-rtx6000x8")
    for part, values in changes.items():
        nested = isinstance(values, dict) and part != "env"
        changed = getattr(stack, part).model_copy(update=values) if nested else values
        stack = stack.model_copy(update={part: changed})
    return stack


def check(stack: Stack | None = None, *, mla: bool = True, **changes: Any) -> set[str]:
    facts = NodeFacts.model_validate(SAMPLE | changes)
    return codes(check_node(stack or flagship(), facts, mla=mla))


def gpu(**changes: Any) -> dict[str, Any]:
    return {"gpus": [*SAMPLE["gpus"][:7], SAMPLE["gpus"][0] | changes]}


def test_good_node_gives_no_finding() -> None:
    findings = check_node(flagship(), NodeFacts.model_validate(SAMPLE), mla=True)
    assert codes(findings) == set()
    assert {one.code for one in findings} == {"NODE015", "NODE018"}


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"gpus": SAMPLE["gpus"][:7]}, "NODE002"),
        (gpu(vram_gib=90.0), "NODE003"),
        ({"driver": {"version": "570.10"}}, "NODE004"),
        ({"driver": {"version": "580.1", "open_modules": False}}, "NODE005"),
        ({"driver": {"version": "580.95.05", "userspace_version": "580.82.07"}}, "NODE006"),
        ({"all_reduce": [*SAMPLE["all_reduce"], {"ranks": 8, "timed_out": True}]}, "NODE007"),
        ({"all_reduce": SAMPLE["all_reduce"][:2]}, "NODE008"),
        ({"iommu": "pt"}, "NODE009"),
        ({"acs": True}, "NODE009"),
        ({"p2p": False}, "NODE010"),
        ({"container": {"runtime": "none"}}, "NODE011"),
        ({"container": {"runtime": "cdi", "canary_ok": False}}, "NODE011"),
        ({"shm_gib": 4.0}, "NODE012"),
        ({"memlock_kib": 8192}, "NODE013"),
        ({"open_files": 1024}, "NODE013"),
        ({"disk": {"read_gb_s": 6.5, "free_gb": 300.0}}, "NODE014"),
        ({"disk": {"read_gb_s": 0.2, "free_gb": 900.0}}, "NODE016"),
        ({"all_reduce": [{"ranks": 8, "size_bytes": 1 << 27, "bandwidth_gb_s": 3.0}]}, "NODE020"),
        (gpu(pcie_width=8), "NODE021"),
        (gpu(pcie_generation=4), "NODE021"),
        ({"secure_boot": True}, "NODE022"),
        (gpu(name="NVIDIA RTX 6000 Ada Generation"), "NODE023"),
        ({"driver": {"error": "NVIDIA-SMI has failed"}}, "NODE024"),
        ({"pci_gpus": [{"address": f"0000:0{n}:00.0", "driver": "nvidia"} for n in range(9)]}, "NODE025"),
        ({"modules": ["nouveau"]}, "NODE026"),
        ({"packages": [{"name": "libnvidia-compute-580", "version": "580.95.05"}]}, "NODE027"),
        ({"kernel": {"release": "6.8.0", "headers": False}}, "NODE028"),
        ({"driver": {"version": "580.95.05", "persistence": False}}, "NODE029"),
        ({"all_reduce": [*SAMPLE["all_reduce"], {"ranks": 8, "error": "unhandled cuda error"}]}, "NODE032"),
        ({"cpu": {"governor": "powersave"}}, "NODE033"),
    ],
)
def test_one_deviation_gives_its_finding(changes: dict[str, Any], code: str) -> None:
    assert check(**changes) == {code}


@pytest.mark.parametrize("field", SAMPLE)
def test_whatever_is_absent_is_unknown_and_never_a_fault(field: str) -> None:
    facts = NodeFacts.model_validate({name: value for name, value in SAMPLE.items() if name != field})
    assert codes(check_node(flagship(), facts, mla=True)) == set()


def test_what_was_left_out_is_a_note_with_its_reason() -> None:
    facts = NodeFacts.model_validate(SAMPLE | {"unmeasured": {"disk": "node_report_measure is off"}})
    findings = {one.code: one for one in check_node(flagship(), facts, mla=True)}
    assert codes(findings.values()) == set()
    assert findings["NODE030"].evidence == "disk: node_report_measure is off"


def test_held_driver_packages_and_loose_tools_are_fine() -> None:
    packages = [{"name": "nvidia-open", "held": True}, {"name": "nvidia-container-toolkit"}, {"name": "libnccl2"}]
    assert check(packages=packages) == set()


@pytest.mark.parametrize(
    ("unknown", "schema", "expected"),
    [((), 1, set()), (("fan",), 1, {"NODE031"}), ((), 2, {"NODE031"}), ((), None, {"NODE031"})],
)
def test_another_form_of_report_is_said(unknown: tuple[str, ...], schema: object, expected: set[str]) -> None:
    assert codes(check_form(unknown, schema)) == expected


def test_no_report_at_all_is_one_note() -> None:
    findings = check_node(flagship(), None, mla=True)
    assert codes(findings) == set()
    assert "NODE001" in {one.code for one in findings}


@pytest.mark.parametrize(
    ("changes", "mla", "expected"),
    [
        ({"memory": {"kv_cache_dtype": "fp8"}}, True, {"NODE017"}),
        ({"memory": {"kv_cache_dtype": "fp8_e4m3"}}, True, {"NODE017"}),
        ({"memory": {"kv_cache_dtype": "fp8"}}, False, set()),
        ({"memory": {"kv_cache_dtype": "fp8"}, "node": {"accelerator": "H200"}}, True, {"NODE023"}),
        ({"memory": {"kv_cache_dtype": "fp8"}, "engine": {"version": "0.34.0"}}, True, set()),
    ],
)
def test_fp8_cache_with_triton_mla(changes: dict[str, Any], mla: bool, expected: set[str]) -> None:
    assert check(flagship(**changes), mla=mla) == expected


@pytest.mark.parametrize(
    ("tensor", "flags", "expected"),
    [(8, {}, set()), (4, {}, set()), (3, {}, {"NODE019"}), (8, {"enforce-eager": True}, {"NODE019"})],
)
def test_pcie_all_reduce_of_the_engine(tensor: int, flags: dict[str, Any], expected: set[str]) -> None:
    stack = flagship(
        env={"VLLM_ALLREDUCE_USE_FLASHINFER_PCIE_IPC": "1"}, parallel={"tensor": tensor}, engine={"flags": flags}
    )
    wanted = [*SAMPLE["all_reduce"], {"ranks": 3, "size_bytes": 1024}]
    assert check(stack, all_reduce=wanted) == expected


def test_nodes_without_gpus_need_no_gpu_facts() -> None:
    findings = check_node(find_stack("smollm2-cpu"), NodeFacts(shm_gib=1, memlock_kib=64), mla=False)
    assert codes(findings) == set()
    assert [one.evidence for one in findings] == ["unknown: disk"]


def test_single_gpu_has_nothing_to_say_about_communication() -> None:
    one = {"gpus": [SAMPLE["gpus"][0] | {"name": made.stack().node.accelerator}]}
    facts = NodeFacts.model_validate(SAMPLE | one | {"all_reduce": [], "p2p": False, "iommu": "on"})
    assert codes(check_node(made.stack(), facts, mla=False)) == set()


@pytest.mark.parametrize(
    ("name", "expected"),
    [("RTX PRO 6000 Blackwell", 120), ("NVIDIA H200", 90), ("NVIDIA B200", 100), ("cpu", None), ("GB200", 100)],
)
def test_compute_capability_by_name(name: str, expected: int | None) -> None:
    assert compute_capability(name) == expected


def test_report_file_is_read_with_fields_that_preflight_does_not_know(tmp_path: Path) -> None:
    path = tmp_path / "node.json"
    path.write_text(json.dumps(SAMPLE | {"hostname": "box", "topology": [[1]]}))
    assert read_node_facts(path).p2p is True


@pytest.mark.parametrize(
    ("text", "cause"), [("{", "no node report"), ('{"iommu": "maybe"}', "iommu"), ('{"shm_gib": -1}', "shm_gib")]
)
def test_malformed_report_names_its_field(tmp_path: Path, text: str, cause: str) -> None:
    path = tmp_path / "node.json"
    path.write_text(text)
    with pytest.raises(OutriderError, match=cause):
        read_node_facts(path)


def test_absent_report(tmp_path: Path) -> None:
    with pytest.raises(OutriderError, match="cannot read"):
        read_node_facts(tmp_path / "none.json")


def test_sample_in_the_documentation_is_the_form_that_is_read() -> None:
    text = (Path(__file__).parents[3] / "docs" / "preflight.md").read_text(encoding="utf-8")
    sample = json.loads(text.split("```json\n")[1].split("```")[0])
    facts = NodeFacts.model_validate(sample)
    assert facts.model_dump(exclude_unset=True, mode="json") == sample
    assert set(sample) == set(NodeFacts.model_fields)
