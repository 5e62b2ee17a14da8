"""Preflight: know before half an hour of loading whether a stack will work. No weight is read."""

from outrider.preflight.checks.running import Running
from outrider.preflight.commands import preflight_command
from outrider.preflight.engine_reading import read_running
from outrider.preflight.facts.node import NodeFacts, read_node_facts
from outrider.preflight.report import Finding, MemoryFigures, PreflightReport
from outrider.preflight.run import run_preflight

__all__ = [
    "Finding",
    "MemoryFigures",
    "NodeFacts",
    "PreflightReport",
    "Running",
    "preflight_command",
    "read_node_facts",
    "read_running",
    "run_preflight",
]
