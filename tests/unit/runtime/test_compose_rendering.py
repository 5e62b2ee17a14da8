"""What a stack becomes as a Compose project; the committed files are this, and nothing in them names a machine."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from outrider import __version__
from outrider.runtime.container import container_launch
from outrider.runtime.render_compose import compose_project, compose_text, start_budget
from outrider.stack import find_stack, list_stacks
from outrider.stack.loader import stack_from_text

ROOT = Path(__file__).resolve().parents[3]
COMMITTED = {"smollm2-cpu": "compose.yaml"}


def services(stack_name: str) -> dict:
    stack = find_stack(stack_name)
    found = yaml.safe_load(compose_text(stack, tuple(stack.variants), __version__))["services"]
    return {name: service for name, service in found.items() if name in stack.variants}


@pytest.mark.parametrize("file", list_stacks(), ids=lambda file: file.stem)
def test_the_committed_project_is_what_the_stack_renders(file: Path) -> None:
    stack = find_stack(file.stem)
    committed = ROOT / "compose" / COMMITTED.get(stack.name, f"{stack.name}.yaml")
    again = f"outrider render {stack.name} all --as compose > {committed.relative_to(ROOT)}"
    assert committed.read_text() == compose_text(stack, tuple(stack.variants), __version__), f"drifted: {again}"


def test_rendering_does_not_depend_on_the_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stack = find_stack("smollm2-cpu")
    before = compose_text(stack, tuple(stack.variants), "1")
    for name in ("OUTRIDER_CACHE", "OUTRIDER_MODELS", "HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("OUTRIDER_ENGINE_PYTHON", str(tmp_path / "bin" / "python"))
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libiomp5.so").touch()
    assert compose_text(stack, tuple(stack.variants), "1") == before
    assert sys.prefix not in before


@pytest.mark.parametrize("stack", ["smollm2-cpu", "kimi-k2.5-rtx6000x8"])
def test_every_service_is_confined_and_published_on_loopback(stack: str) -> None:
    for variant, service in services(stack).items():
        assert service["profiles"] == [variant]
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["user"] == "${OUTRIDER_UID:-10001}:${OUTRIDER_GID:-10001}"
        assert service["ports"] == ["${OUTRIDER_BIND:-127.0.0.1}:${OUTRIDER_PORT:-8000}:8000"]
        assert service["logging"]["options"] == {"max-size": "16m", "max-file": "3"}
        assert all(mount["read_only"] for mount in service["volumes"] if mount["type"] == "bind")
        assert "privileged" not in service
        assert not re.search(r"api[-_]key=|VLLM_API_KEY", str(service)), "a key never stands in the project"


def test_gpus_are_requested_by_cdi_as_many_as_the_stack_splits_over() -> None:
    (device,) = services("kimi-k2.5-rtx6000x8")["eagle3"]["deploy"]["resources"]["reservations"]["devices"]
    assert device == {
        "driver": "cdi",
        "capabilities": ["gpu"],
        "device_ids": [f"nvidia.com/gpu={i}" for i in range(8)],
    }
    assert "deploy" not in services("smollm2-cpu")["eagle3"]


def test_the_health_check_waits_as_long_as_the_weights_take_to_load() -> None:
    stack = find_stack("kimi-k2.5-rtx6000x8")
    service = services(stack.name)["baseline"]
    # 300 s for everything else, and twice 595e9 bytes at 3.0e9 bytes/s.
    assert service["healthcheck"]["start_period"] == "697s"
    assert start_budget(stack, container_launch(stack, "baseline")).seconds == pytest.approx(300 + 2 * 595 / 3)
    slow = stack_from_text(
        (ROOT / "stacks" / f"{stack.name}.yaml").read_text().replace("disk_gb_s: 3.0", "disk_gb_s: 0.5"), "slow.yaml"
    )
    assert compose_project(slow, ("baseline",), "1")["services"]["baseline"]["healthcheck"]["start_period"] == "2680s"


def test_the_drafter_is_mounted_where_the_command_looks_for_it() -> None:
    service = services("smollm2-cpu")["eagle3"]
    mounted = {mount["target"]: mount["source"] for mount in service["volumes"]}
    assert mounted["/models/drafter"] == "${OUTRIDER_PROJECT:-..}/models/smollm2-135m-eagle3"
    assert '"model":"/models/drafter"' in service["command"][-1]
    assert service["command"][service["command"].index("--model") + 1] == "/models/target"
    assert "/models/drafter" not in str(services("smollm2-cpu")["baseline"])


def test_a_dollar_sign_of_the_stack_is_no_variable_of_compose() -> None:
    text = (ROOT / "stacks" / "smollm2-cpu.yaml").read_text()
    text = text.replace("campaign:", "env:\n  GREETING: costs $5\n\ncampaign:", 1)
    project = compose_project(stack_from_text(text, "x.yaml"), ("baseline",), "1")
    assert project["services"]["baseline"]["environment"]["GREETING"] == "costs $$5"


@pytest.mark.parametrize("file", sorted((ROOT / "compose").glob("*.yaml")), ids=lambda file: file.stem)
def test_compose_takes_every_committed_project_and_each_of_its_profiles(file: Path) -> None:
    compose = Path(sys.executable).with_name("docker-compose")  # of the development environment; asks no engine
    services = yaml.safe_load(file.read_text())["services"]
    for profile in ["", *sorted({name for service in services.values() for name in service.get("profiles", [])})]:
        words = [compose, "--file", file, "--profile", profile, "config", "--format", "json"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "warn" not in done.stderr.lower(), done.stderr
        taken = set(json.loads(done.stdout)["services"])
        assert taken == {name for name, service in services.items() if profile in service.get("profiles", [profile])}


def test_compose_refuses_a_word_that_its_schema_does_not_know(tmp_path: Path) -> None:
    text = (ROOT / "compose" / "multinode.yaml").read_text().replace("read_only: true", "read_onyl: true", 1)
    (tmp_path / "compose.yaml").write_text(text)
    words = [Path(sys.executable).with_name("docker-compose"), "--file", tmp_path / "compose.yaml", "config", "--quiet"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "read_onyl" in done.stderr
