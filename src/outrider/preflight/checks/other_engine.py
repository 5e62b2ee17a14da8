"""A variant on an engine that has no support table: its adapter says whether it can be started at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outrider.engine import adapter_of
from outrider.errors import StackError
from outrider.preflight.report import Finding, found

if TYPE_CHECKING:
    from outrider.preflight.checks.case import Case


def check_other_engine(case: Case) -> list[Finding]:
    """What the engine's adapter refuses: methods, flags and options that it does not have."""
    engine = adapter_of(case.stack, case.name)
    try:
        engine.launch(case.stack, case.name, host="127.0.0.1", port=8000, model_dir=None, drafter_dir=None)
    except StackError as error:
        return [found("SPEC020", case.place("engine"), f"{engine.name} {case.stack.engine.version}: {error.cause}")]
    return []
