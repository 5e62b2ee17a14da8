"""ansible-lint's strictest profile and Ansible's own syntax check, over the whole tree."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.provision

ANSIBLE = Path(__file__).resolve().parents[2] / "ansible"


def run(*argv: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "ANSIBLE_CONFIG": str(ANSIBLE / "ansible.cfg")}
    return subprocess.run(argv, cwd=ANSIBLE, env=env, capture_output=True, text=True, check=False)


def test_the_production_profile_is_clean() -> None:
    done = run("ansible-lint", "--offline", "--nocolor", "--strict", "--profile", "production")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("playbook", ["site.yml", "upgrade.yml", "reset.yml", "report.yml"])
def test_playbooks_parse(playbook: str) -> None:
    done = run("ansible-playbook", "--syntax-check", "--inventory", "inventory.example.yml", playbook)
    assert done.returncode == 0, done.stdout + done.stderr
