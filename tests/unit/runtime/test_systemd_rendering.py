"""What a variant becomes as a unit; systemd itself reads it, and its warnings count."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from outrider.engine import Launch
from outrider.runtime.render_systemd import UnitOptions, unit_name, unit_text
from outrider.stack import find_stack, list_stacks

if TYPE_CHECKING:
    from pathlib import Path

LAUNCH = Launch(
    argv=(sys.executable, "-m", "engine", "--config", '{"method": "ngram"}', "100%", "a;b", ""),
    env={"GREETING": 'say "$hello"'},
    port=8000,
    health_path="/health",
    metrics_path="/metrics",
    weight_bytes=int(595e9),
)


def directives(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if "=" in line and not line.startswith("#"):
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


@pytest.fixture
def systemd_analyze() -> str:
    found = shutil.which("systemd-analyze")
    if found is None:
        missing = "no systemd-analyze on this machine (Debian: apt-get install systemd)"
        pytest.fail(missing) if os.environ.get("CI") else pytest.skip(missing)
    return found


@pytest.mark.parametrize("file", list_stacks(), ids=lambda file: file.stem)
def test_systemd_takes_every_unit_without_a_warning_and_finds_it_confined(
    file: Path, tmp_path: Path, systemd_analyze: str
) -> None:
    stack = find_stack(file.stem)
    units = []
    for variant in stack.variants:
        path = tmp_path / unit_name(stack.name, variant)
        path.write_text(unit_text(stack, variant, LAUNCH, UnitOptions(user="root", api_key_file=tmp_path / "key")))
        units.append(path)
    checked = subprocess.run([systemd_analyze, "verify", *units], capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")
    for path in units:
        path.write_text(path.read_text().replace("User=root", "User=outrider").replace("Group=root", "Group=outrider"))
        scored = subprocess.run(
            [systemd_analyze, "security", "--offline=true", "--threshold=39", "--no-pager", path],
            capture_output=True,
            text=True,
            check=False,
        )
        exposure = re.search(r"exposure level for \S+: ([\d.]+)", scored.stdout)
        assert exposure, scored.stderr
        assert float(exposure[1]) < 4.0


def test_siblings_conflict_by_name_and_are_ordered_one_way() -> None:
    stack = find_stack("smollm2-cpu")
    units = {v: directives(unit_text(stack, v, LAUNCH)) for v in stack.variants}
    others = ("baseline", "eagle3", "ngram-auto", "eagle3-auto")
    assert units["ngram"]["Conflicts"] == [" ".join(f"outrider-smollm2-cpu-{v}.service" for v in others)]
    for one, other in (("baseline", "ngram"), ("baseline", "eagle3"), ("ngram", "eagle3")):
        assert unit_name(stack.name, one) in " ".join(units[other]["After"])
        assert unit_name(stack.name, other) not in " ".join(units[one]["After"])


def test_the_start_may_take_as_long_as_the_weights_need_on_the_nodes_disk() -> None:
    stack = find_stack("kimi-k2.5-rtx6000x8")
    found = directives(unit_text(stack, "baseline", LAUNCH))
    gate_s = 3 * (300 + 2 * 595 / 3)
    assert f"--within {round(gate_s + 0.5)}" in found["ExecStartPost"][0]
    assert found["ExecStartPost"][0].endswith(" --pid $MAINPID")
    assert int(found["TimeoutStartSec"][0]) > gate_s
    quick = directives(unit_text(stack, "baseline", replace(LAUNCH, weight_bytes=0)))
    assert int(quick["TimeoutStartSec"][0]) < gate_s


def test_words_survive_systemds_own_syntax() -> None:
    found = directives(unit_text(find_stack("smollm2-cpu"), "baseline", LAUNCH))
    (command,) = found["ExecStart"]
    assert command.endswith(r'''--config "{\"method\": \"ngram\"}" 100%% "a;b" ""''')
    assert r'''"GREETING=say \"$$hello\""''' in found["Environment"]


def test_a_key_goes_in_as_a_credential_and_a_home_directory_is_bound_read_only(tmp_path: Path) -> None:
    stack = find_stack("smollm2-cpu")
    options = UnitOptions(api_key_file=tmp_path / "key", paths=(type(tmp_path)("/home/ann/models/target"),))
    found = directives(unit_text(stack, "baseline", LAUNCH, options))
    assert found["LoadCredential"] == [f"api_key:{tmp_path / 'key'}"]
    assert found["ProtectHome"] == ["tmpfs"]
    assert "/home/ann/models/target" in found["BindReadOnlyPaths"]
    plain = replace(LAUNCH, argv=("/opt/engine/bin/python", "-m", "engine"))
    bare = directives(unit_text(stack, "baseline", plain, UnitOptions(python="/opt/engine/bin/python")))
    assert bare["ProtectHome"] == ["yes"]
    assert "LoadCredential" not in bare


def test_only_a_gpu_engine_gets_gpu_devices() -> None:
    gpu = directives(unit_text(find_stack("kimi-k2.5-rtx6000x8"), "baseline", LAUNCH))
    assert "char-nvidia rw" in gpu["DeviceAllow"]
    assert "PrivateDevices" not in gpu
    assert directives(unit_text(find_stack("smollm2-cpu"), "baseline", LAUNCH))["PrivateDevices"] == ["yes"]
