"""The programs that Ansible runs on nodes, as modules."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from types import ModuleType

ANSIBLE = Path(__file__).resolve().parents[3] / "ansible"


def program(role: str, name: str) -> ModuleType:
    """A program of a role, loaded from where Ansible takes it."""
    path = ANSIBLE / "roles" / role / "files" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # they ask for each other by name
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def node_kernel() -> ModuleType:
    return program("node_report", "node_kernel")


@pytest.fixture(scope="session")
def node_facts(node_kernel: ModuleType) -> ModuleType:
    return program("node_report", "node_facts")


@pytest.fixture(scope="session")
def node_measure(node_facts: ModuleType) -> ModuleType:
    return program("node_report", "node_measure")


@pytest.fixture(scope="session")
def fetch_model() -> ModuleType:
    return program("model_store", "fetch_model")


@pytest.fixture(scope="session")
def reboot_reasons() -> ModuleType:
    return program("host_tuning", "reboot_reasons")
