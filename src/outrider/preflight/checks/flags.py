"""Flags and variables of the stack against the pinned engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outrider.preflight.report import Finding, found
from outrider.stack.names import did_you_mean

if TYPE_CHECKING:
    from outrider.preflight.checks.case import Case
    from outrider.preflight.engine_tables import EngineTable


def check_flags(case: Case) -> list[Finding]:
    """A finding for each flag that ends the start-up."""
    if case.table is None:
        return []
    written = {
        f"stack {case.stack.name}, engine.flags": case.stack.engine.flags,
        case.place("flags"): case.variant.flags,
    }
    return [
        found("TARGET020", f"{place}.{flag}", f"vllm {case.table.version} has no --{flag}{_nearest(flag, case.table)}")
        for place, flags in written.items()
        for flag in flags
        if not _known(flag, case.table)
    ]


def check_endpoints(case: Case) -> list[Finding]:
    """A finding where the engine would open endpoints that no key guards."""
    value = case.env.get("VLLM_SERVER_DEV_MODE", "0")
    # The engine reads it as a number; anything else ends its start.
    if value.strip() in {"", "0"}:
        return []
    return [found("TARGET021", case.place("env.VLLM_SERVER_DEV_MODE"), value)]


def _known(flag: str, table: EngineTable) -> bool:
    """Whether argparse takes it: by name, switched off by `no-`, or cut short where that leaves one meaning."""
    name = flag.removeprefix("no-")
    return bool(table.flags & {flag, name}) or sum(option.startswith(name) for option in table.flags) == 1


def _nearest(flag: str, table: EngineTable) -> str:
    return did_you_mean(flag.removeprefix("no-"), table.flags)
