"""What every role must have: defaults that its argument specs repeat, names of its own, full module names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ANSIBLE = Path(__file__).resolve().parents[3] / "ansible"
ROLES = sorted(path.name for path in (ANSIBLE / "roles").iterdir() if path.is_dir())
DOCUMENTATION = ANSIBLE.parent / "docs" / "provisioning" / "roles.md"
_KEYWORDS = {
    "name", "when", "loop", "loop_control", "register", "vars", "notify", "tags", "block", "rescue", "always", "until",
    "retries", "delay", "environment", "changed_when", "failed_when", "check_mode", "delegate_to", "become", "diff",
    "async", "poll",
}  # fmt: skip


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def defaults_of(role: str) -> dict[str, Any]:
    return read(ANSIBLE / "roles" / role / "defaults" / "main.yml") or {}


def options_of(role: str) -> dict[str, Any]:
    return read(ANSIBLE / "roles" / role / "meta" / "argument_specs.yml")["argument_specs"]["main"]["options"]


def tasks_in(document: Any) -> Iterator[dict[str, Any]]:
    for task in document or []:
        yield task
        for part in ("block", "rescue", "always", "tasks", "pre_tasks", "post_tasks", "handlers"):
            yield from tasks_in(task.get(part))


def task_files() -> list[Path]:
    return [*sorted(ANSIBLE.glob("roles/*/tasks/*.yml")), *sorted(ANSIBLE.glob("roles/*/handlers/*.yml"))]


@pytest.mark.parametrize("role", ROLES)
def test_argument_specs_and_defaults_say_the_same(role: str) -> None:
    assert {name: option.get("default") for name, option in options_of(role).items()} == defaults_of(role)


@pytest.mark.parametrize("role", ROLES)
def test_every_default_has_its_type(role: str) -> None:
    kinds = {"bool": bool, "int": int, "list": list, "dict": dict, "str": str, "path": str, "float": float}
    for name, option in options_of(role).items():
        default = option["default"]
        assert isinstance(default, kinds[option["type"]]) or "{{" in str(default), name
        assert "choices" not in option or default in option["choices"] or "{{" in str(default), name


@pytest.mark.parametrize("role", ROLES)
def test_variables_carry_their_role_and_are_described(role: str) -> None:
    for name, option in options_of(role).items():
        assert name.startswith(f"{role}_")
        assert option["description"].strip().endswith((".", ")"))


@pytest.mark.parametrize("role", ROLES)
def test_every_variable_is_used(role: str) -> None:
    texts = [
        path.read_text(encoding="utf-8") for path in ANSIBLE.rglob("*") if path.is_file() and "meta" not in path.parts
    ]
    for name in options_of(role):
        uses = sum(len(re.findall(rf"\b{name}\b", text)) for text in texts)
        assert uses > 1, f"{name} is set and never read"


@pytest.mark.parametrize("role", ROLES)
def test_every_variable_is_documented(role: str) -> None:
    documented = DOCUMENTATION.read_text(encoding="utf-8")
    assert [name for name in options_of(role) if f"`{name}`" not in documented] == []


@pytest.mark.parametrize("path", task_files(), ids=lambda path: f"{path.parts[-3]}/{path.name}")
def test_tasks_name_modules_in_full_and_ignore_no_error(path: Path) -> None:
    for task in tasks_in(read(path)):
        assert "ignore_errors" not in task
        assert task.get("name"), task
        modules = set(task) - _KEYWORDS
        assert modules == set() if "block" in task else len(modules) == 1, modules
        assert all(module.startswith("ansible.builtin.") for module in modules), modules


def test_each_play_and_role_has_a_phase() -> None:
    for play in read(ANSIBLE / "site.yml"):
        roles = play.get("roles", [])
        assert play.get("tags") or all(role.get("tags") for role in roles), play["name"]
        assert all(task.get("tags") for task in play.get("post_tasks", [])), play["name"]


def test_the_example_inventory_names_only_variables_that_exist() -> None:
    known = {name for role in ROLES for name in options_of(role)} | {
        "outrider_gpu_node", "outrider_weights_gb", "outrider_run_dir", "outrider_state_dir", "outrider_config_dir",
        "outrider_apt_lock_timeout_s",
    }  # fmt: skip
    text = (ANSIBLE / "inventory.example.yml").read_text(encoding="utf-8")
    prefixes = "|".join([*ROLES, "outrider"])
    named = set(re.findall(rf"\b((?:{prefixes})_[a-z0-9_]+):", text))
    assert named - known == set()
    assert len(named) > 15


def test_the_example_inventory_has_both_groups() -> None:
    assert set(read(ANSIBLE / "inventory.example.yml")["all"]["children"]) == {"serving_nodes", "ray_workers"}
