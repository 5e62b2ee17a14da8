"""`outrider provision`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from outrider.provision.errors import ProvisionError
from outrider.provision.node_report import Examined, examine, exit_code
from outrider.provision.page import write_page
from outrider.provision.playbooks import Action
from outrider.provision.progress import clock
from outrider.provision.session import Outcome, Request, provision
from outrider.runtime.signals import unwinding_on_signals
from outrider.stack import Stack, find_stack

if TYPE_CHECKING:
    from collections.abc import Sequence

_COLOURS = {"error": "bold red", "advisory": "yellow"}


def provision_command(
    action: Annotated[
        Action,
        typer.Argument(
            help="site: bare to ready. upgrade: the newest that the pins allow, one node after the other. "
            "reset: take back. report: measure again."
        ),
    ] = Action.SITE,
    *,
    inventory: Annotated[
        Path, typer.Option("--inventory", "-i", exists=True, help="see ansible/inventory.example.yml")
    ],
    stack: Annotated[
        str | None, typer.Option(help="what the nodes must suffice for: a shipped stack, or a file")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="change nothing; show what would change")] = False,
    tags: Annotated[str | None, typer.Option(help="phases, comma-separated: preflight,host,driver,...")] = None,
    limit: Annotated[str | None, typer.Option(help="nodes or groups of the inventory")] = None,
    variable: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="a variable of the roles; no secrets, they can be seen"),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="reset: do not ask")] = False,
    become_password_file: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="sudo's password, in a file of mode 0600")
    ] = None,
    vault_password_file: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="the vault's password, in a file of mode 0600")
    ] = None,
    json_path: Annotated[
        str | None, typer.Option("--json", metavar="PATH", help="write the outcome as JSON; - is standard output")
    ] = None,
) -> None:
    """Make bare nodes ready to serve, and prove it by a node report. Safe to run again: what is done stays done.

    Exit 0: every node is ready. 1: a node failed, or deviates so that the stack cannot work. 3: ready, with advisories.
    """
    chosen = find_stack(stack) if stack else None
    variables = dict(_assignment(word) for word in variable or ())
    if action is Action.RESET and not check:
        if not yes and not typer.confirm(f"Take back what was provisioned on the nodes of {inventory}?"):
            raise typer.Exit(1)
        variables["outrider_reset"] = True
    passwords = {"--become-password-file": become_password_file, "--vault-password-file": vault_password_file}
    request = Request(
        action=action,
        inventory=inventory,
        stack=chosen,
        check=check,
        tags=tags,
        limit=limit,
        variables=variables,
        password_files={option: file.resolve() for option, file in passwords.items() if file is not None},
    )
    console = Console(stderr=json_path == "-", highlight=False)
    try:
        with unwinding_on_signals():
            outcome = provision(request, console)
    except KeyboardInterrupt:
        console.print("interrupted; run the same command again to go on where it stopped", markup=False)
        raise typer.Exit(130) from None
    nodes = [examine(file, chosen) for file in sorted(outcome.directory.nodes.glob("*.json"))]
    _write_page(outcome, nodes, chosen)
    _print(console, outcome, nodes)
    if check:
        _print_changes(console, outcome)
    code = 1 if outcome.progress.failed else exit_code(nodes)
    if json_path is not None:
        _write_json(json_path, outcome, nodes, code)
    raise typer.Exit(code)


def _assignment(word: str) -> tuple[str, Any]:
    name, equals, value = word.partition("=")
    if not equals or not name.isidentifier():
        raise typer.BadParameter(f"{word!r} is not NAME=VALUE", param_hint="--set")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _write_page(outcome: Outcome, nodes: Sequence[Examined], stack: Stack | None) -> None:
    if not nodes:
        return
    silent = {
        name: str(node.failure.wrong).splitlines()[0] if node.failure else node.verdict
        for name, node in outcome.progress.failed.items()
        if name not in {one.name for one in nodes}
    }
    write_page(
        outcome.directory.path / "report.html", nodes, stack=stack, title=outcome.directory.path.name, silent=silent
    )


def _print(console: Console, outcome: Outcome, nodes: Sequence[Examined]) -> None:
    findings = [(node.name, finding) for node in nodes for finding in node.findings if finding.severity in _COLOURS]
    if findings:
        table = Table(header_style="bold", show_lines=True)
        for heading in ("node", "code", "what", "seen", "fix"):
            table.add_column(heading, overflow="fold")
        for name, finding in findings:
            colour = _COLOURS[finding.severity]
            table.add_row(
                escape(name),
                f"[{colour}]{finding.code}[/]\n{finding.severity}",
                escape(finding.title),
                escape(finding.evidence),
                escape(finding.fix),
            )
        console.print(table)
    for name, node in outcome.progress.failed.items():
        text = str(node.failure) if node.failure else f"{name} did not come through ({node.verdict})"
        console.print(f"[bold red]error:[/] {escape(text)}", soft_wrap=True)
    for name, node in outcome.progress.nodes.items():
        if node.verdict == "ok":
            console.print(f"{name}: ok, {node.done} tasks, {node.changed} changed", markup=False, soft_wrap=True)
    seconds = sum(outcome.progress.phases.values())
    page = outcome.directory.path / "report.html"
    shown = f"; report: {page}" if page.is_file() else ""
    console.print(f"{clock(seconds)} of tasks; {outcome.directory.path}{shown}", markup=False, soft_wrap=True)


def _print_changes(console: Console, outcome: Outcome) -> None:
    for name, node in outcome.progress.nodes.items():
        if node.changes:
            console.print(f"{name} would be changed by", markup=False)
            for task in node.changes:
                console.print(f"  {task}", markup=False, soft_wrap=True)
    difference = outcome.directory.path / "artifacts" / "ansible" / "stdout"
    console.print(f"nothing was changed; line by line: {difference}", markup=False, soft_wrap=True)


def _write_json(path: str, outcome: Outcome, nodes: Sequence[Examined], code: int) -> None:
    content = {
        "schema": 1,
        "exit_code": code,
        "directory": str(outcome.directory.path),
        "nodes": {name: node.verdict for name, node in outcome.progress.nodes.items()},
        "changed": {name: node.changed for name, node in outcome.progress.nodes.items()},
        "findings": {node.name: [one.model_dump(mode="json") for one in node.findings] for node in nodes},
    }
    text = json.dumps(content, indent=1) + "\n"
    if path == "-":
        sys.stdout.write(text)
        return
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise ProvisionError(f"cannot write {path}: {error.strerror}") from error
