"""One provisioning from its lock to its run directory: what `outrider provision` does."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from outrider import __version__
from outrider.errors import RuntimeStateError
from outrider.provision.errors import ProvisionError
from outrider.provision.expected import variables_of
from outrider.provision.playbook_run import Order, run_playbook
from outrider.provision.playbooks import Action, tree
from outrider.provision.progress import ProgressView
from outrider.provision.run_directory import RunDirectory, last_durations, make_run_directory
from outrider.runtime.lock import locked
from outrider.state import state_dir

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from rich.console import Console

    from outrider.provision.events import Progress
    from outrider.stack import Stack

# ansible-playbook's own: some hosts failed, some were unreachable, or both.
_HOSTS_FAILED = {2, 4, 6}


@dataclass(frozen=True, slots=True)
class Request:
    """What the user asked for.

    Attributes:
        action: which playbook.
        inventory: file or directory.
        stack: whose expectations the nodes must meet; None leaves that to the inventory.
        check: change nothing.
        tags, limit: as ansible-playbook takes them.
        variables: of the roles; they win over the inventory's and the stack's.
        password_files: options of ansible-playbook with files that hold a secret each.
    """

    action: Action
    inventory: Path
    stack: Stack | None = None
    check: bool = False
    tags: str | None = None
    limit: str | None = None
    variables: Mapping[str, Any] = field(default_factory=dict)
    password_files: Mapping[str, Path] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended: its directory, and its nodes' states."""

    directory: RunDirectory
    progress: Progress


def provision(request: Request, console: Console) -> Outcome:
    """Run a playbook over an inventory, and write down what it did.

    Raises:
        ProvisionError: another run of this inventory is under way, a secret's file is open to others, or the
            playbook could not run at all. Nodes that failed are no error here: the outcome says which.
    """
    inventory = request.inventory.resolve()
    for file in request.password_files.values():
        _require_private(file)
    lock = state_dir() / "provision" / f"{hashlib.sha256(str(inventory).encode()).hexdigest()[:16]}.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    try:
        with locked(lock, str(inventory)):
            return _run(request, inventory, console)
    except RuntimeStateError as error:
        raise ProvisionError(
            f"another run over {inventory} is under way",
            evidence=error.evidence,
            next_step="wait until it has ended; two playbooks on one node undo each other's work",
        ) from error


def _run(request: Request, inventory: Path, console: Console) -> Outcome:
    earlier = last_durations(request.action, inventory, check=request.check)
    playbook = tree() / f"{request.action.value}.yml"
    directory = make_run_directory()
    view = ProgressView(console, f"{request.action.value} of {inventory.name}", earlier)
    variables: dict[str, Any] = {"outrider_run_dir": str(directory.path)}
    if request.stack is not None:
        variables |= variables_of(request.stack)
    variables |= request.variables
    order = Order(
        playbook=playbook,
        inventory=inventory,
        variables=variables,
        check=request.check,
        tags=request.tags,
        limit=request.limit,
        password_files=request.password_files,
    )
    began = datetime.now(UTC)
    status = "interrupted"
    try:
        with view.shown():
            ended = run_playbook(order, directory, view.take)
        hosts_ran = bool(view.progress.nodes) and view.progress.finished
        status = "done" if ended.code == 0 else "failed"
        if ended.code not in {0, *_HOSTS_FAILED} or not hosts_ran:
            status = "failed"
            raise ProvisionError(
                "the playbook did not run through" if view.progress.nodes else "the playbook reached no node",
                evidence=_last_words(ended.output) or f"ansible-playbook ended with {ended.code}",
                next_step=f"see {directory.path / 'artifacts' / 'ansible' / 'stdout'}",
            )
    finally:
        directory.write_summary(_summary(request, inventory, view, status, began))
    return Outcome(directory, view.progress)


def _summary(request: Request, inventory: Path, view: ProgressView, status: str, began: datetime) -> dict[str, Any]:
    progress = view.progress
    return {
        "schema": 1,
        "outrider": __version__,
        "action": request.action.value,
        "inventory": str(inventory),
        "stack": request.stack.name if request.stack else None,
        "check": request.check,
        "partial": bool(request.tags or request.limit),
        "tags": request.tags,
        "limit": request.limit,
        "status": status,
        "began": began.isoformat(timespec="seconds"),
        "seconds": round(view.elapsed_s, 1),
        "phases": {name: round(seconds, 1) for name, seconds in progress.phases.items()},
        "nodes": {
            name: {
                "verdict": node.verdict if node.verdict != "running" else status,
                "changed": node.changed,
                "done": node.done,
                "phase": node.phase,
                "failure": asdict(node.failure) if node.failure and node.verdict != "ok" else None,
            }
            for name, node in progress.nodes.items()
        },
    }


def _last_words(output: str) -> str:
    lines = [line.rstrip() for line in output.splitlines() if line.strip()]
    wrong = [line for line in lines if "ERROR" in line or "WARNING" in line] or lines
    return "\n".join(wrong[-6:])


def _require_private(file: Path) -> None:
    try:
        mode = file.stat().st_mode
    except OSError as error:
        raise ProvisionError(f"cannot read {file}: {error.strerror}") from error
    if mode & 0o077:
        raise ProvisionError(
            "a password's file is open to others",
            evidence=f"{file} has mode {mode & 0o777:04o}",
            next_step=f"chmod 600 {file}, and change the password if others use this machine",
        )
