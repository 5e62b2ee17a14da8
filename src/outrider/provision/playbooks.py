"""Which playbook does what, and where the tree of playbooks and roles is: a checkout's, or the installed package's."""

from __future__ import annotations

from enum import StrEnum
from importlib import resources
from pathlib import Path

from outrider.provision.errors import ProvisionError


class Action(StrEnum):
    """What `outrider provision` does; each is a playbook."""

    SITE = "site"
    UPGRADE = "upgrade"
    RESET = "reset"
    REPORT = "report"


def tree() -> Path:
    """The directory of playbooks and roles.

    Raises:
        ProvisionError: neither a checkout nor the installed package has one.
    """
    checkout = Path(__file__).resolve().parents[3] / "ansible"
    packed = Path(str(resources.files("outrider") / "_ansible"))
    for candidate in (checkout, packed):
        if (candidate / "site.yml").is_file():
            return candidate
    raise ProvisionError(
        "the playbooks are not installed",
        evidence=f"looked for site.yml in {checkout} and {packed}",
        next_step="install Outrider's wheel, or run from a checkout",
    )
