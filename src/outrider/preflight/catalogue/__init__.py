"""Every kind of finding, by code. The pages of docs/findings/ are generated from this."""

from outrider.preflight.catalogue.budget import BUDGET
from outrider.preflight.catalogue.drafter import DRAFTER
from outrider.preflight.catalogue.files import FILES
from outrider.preflight.catalogue.graphs import GRAPHS
from outrider.preflight.catalogue.kind import Kind, Severity
from outrider.preflight.catalogue.memory import MEMORY
from outrider.preflight.catalogue.node import NODE
from outrider.preflight.catalogue.running import RUNNING
from outrider.preflight.catalogue.speculation import SPECULATION
from outrider.preflight.catalogue.target import TARGET

GROUPS: dict[str, tuple[Kind, ...]] = {
    "Files": FILES,
    "Target": TARGET,
    "Drafter": DRAFTER,
    "Speculative configuration": SPECULATION,
    "Expert budget": BUDGET,
    "CUDA graphs": GRAPHS,
    "Memory": MEMORY,
    "Node": NODE,
    "Running engine": RUNNING,
}
KINDS: dict[str, Kind] = {kind.code: kind for group in GROUPS.values() for kind in group}

__all__ = ["GROUPS", "KINDS", "Kind", "Severity"]
