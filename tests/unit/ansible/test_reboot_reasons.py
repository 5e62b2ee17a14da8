"""When a node has to boot anew, and when another boot would be a loop."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

WANTED: dict[str, Any] = {"words": ["iommu=off"], "uvm_hmm_off": True, "gpu": True, "required": None}


def module(sysfs: Path, name: str, **files: str) -> None:
    for file, text in {"": "", **files}.items():
        place = sysfs / "module" / name / file.replace("__", "/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.mkdir(exist_ok=True) if not file else place.write_text(text)


def test_a_node_that_is_as_wanted_needs_none(reboot_reasons: ModuleType, tmp_path: Path) -> None:
    module(tmp_path, "nvidia", version="580.95.05\n")
    module(tmp_path, "nvidia_uvm", parameters__uvm_disable_hmm="Y\n")
    assert reboot_reasons.reasons(WANTED, tmp_path, ["ro", "iommu=off"], "580.95.05") == []


def test_each_difference_is_a_reason_with_its_evidence(reboot_reasons: ModuleType, tmp_path: Path) -> None:
    module(tmp_path, "nvidia", version="580.82.07\n")
    module(tmp_path, "nvidia_uvm", parameters__uvm_disable_hmm="N\n")
    module(tmp_path, "nouveau")
    required = tmp_path / "reboot-required"
    required.touch()
    (tmp_path / "reboot-required.pkgs").write_text("linux-image-amd64\ndbus\n")
    found = reboot_reasons.reasons({**WANTED, "required": str(required)}, tmp_path, ["ro"], "580.95.05")
    assert found == [
        "the kernel's command line lacks iommu=off",
        "nouveau has the GPUs",
        "the loaded NVIDIA module is 580.82.07, installed is 580.95.05",
        "nvidia_uvm was loaded without uvm_disable_hmm=1",
        "packages ask for it: dbus, linux-image-amd64",
    ]


def test_nouveau_is_none_of_our_business_before_a_driver_is_there(reboot_reasons: ModuleType, tmp_path: Path) -> None:
    module(tmp_path, "nouveau")
    assert reboot_reasons.reasons(WANTED, tmp_path, ["iommu=off"], "") == []


def test_a_module_that_is_not_loaded_needs_none(reboot_reasons: ModuleType, tmp_path: Path) -> None:
    assert reboot_reasons.reasons(WANTED, tmp_path, ["iommu=off"], "580.95.05") == []


def test_the_same_reason_after_another_boot_is_a_loop(reboot_reasons: ModuleType) -> None:
    marker = {"boot_id": "a", "reasons": ["the kernel's command line lacks iommu=off"]}
    found = ["the kernel's command line lacks iommu=off", "nouveau has the GPUs"]
    assert reboot_reasons.repeated(found, "b", marker) == found[:1]


def test_a_boot_that_was_asked_for_and_never_came_may_be_asked_for_again(reboot_reasons: ModuleType) -> None:
    assert reboot_reasons.repeated(["x"], "a", {"boot_id": "a", "reasons": ["x"]}) == []
    assert reboot_reasons.repeated(["x"], "a", None) == []
