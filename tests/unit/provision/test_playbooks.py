"""Where the playbooks are found."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from outrider.provision import playbooks
from outrider.provision.errors import ProvisionError
from outrider.provision.playbook_run import kept_environment
from outrider.provision.playbooks import Action, tree

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable


def test_every_action_has_its_playbook() -> None:
    assert [action for action in Action if not (tree() / f"{action.value}.yml").is_file()] == []


def installed(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let the package look as if it lay in `directory`."""
    module = directory / "outrider" / "provision" / "playbooks.py"
    monkeypatch.setattr(playbooks, "__file__", str(module))

    def files(_name: str) -> Traversable:
        return directory / "outrider"

    monkeypatch.setattr(playbooks.resources, "files", files)
    return directory / "outrider" / "_ansible"


def test_an_installed_package_carries_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = installed(tmp_path, monkeypatch)
    packed.mkdir(parents=True)
    (packed / "site.yml").write_text("[]")
    assert tree() == packed


def test_a_package_without_them_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(tmp_path, monkeypatch)
    with pytest.raises(ProvisionError, match="not installed"):
        tree()


@pytest.mark.parametrize(
    ("name", "kept"),
    [("PATH", True), ("SSH_AUTH_SOCK", True), ("ANSIBLE_CONFIG", True), ("ANSIBLE_VAULT_PASSWORD_FILE", True),
     ("ANSIBLE_BECOME_PASSWORD", False), ("HF_TOKEN", False), ("AWS_SECRET_ACCESS_KEY", False)],
)  # fmt: skip
def test_only_what_ansible_needs_is_handed_on(name: str, kept: bool) -> None:
    assert (name in kept_environment({name: "x"})) is kept
