"""What a playbook reports while it runs, as a state that a terminal can show: pure, fed one event at a time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from outrider.provision.failures import NodeFailure, failure_of

if TYPE_CHECKING:
    from collections.abc import Mapping

# A play's own steps before and between roles.
NO_ROLE = "start"


@dataclass(slots=True)
class NodeState:
    """One node, as far as the playbook has come.

    Attributes:
        phase: role whose task runs, or ran last.
        task: that task's name.
        done, changed, skipped: tasks so far.
        changes: those that changed something, as `role: task`, in their order.
        failure: the latest failed task; a playbook may still rescue it.
        verdict: `ok`, `failed` or `unreachable` at the end, `running` before it.
    """

    phase: str = NO_ROLE
    task: str = ""
    done: int = 0
    changed: int = 0
    skipped: int = 0
    changes: list[str] = field(default_factory=list)
    failure: NodeFailure | None = None
    verdict: str = "running"


@dataclass(slots=True)
class Progress:
    """All nodes of a run.

    Attributes:
        nodes: by name in the inventory.
        phases: seconds that tasks of each role took, in the order in which they came (the slowest node's).
        finished: the playbook said that it is through.
    """

    nodes: dict[str, NodeState] = field(default_factory=dict)
    phases: dict[str, float] = field(default_factory=dict)
    finished: bool = False
    _seconds: dict[tuple[str, str], float] = field(default_factory=dict)

    def take(self, event: Mapping[str, Any]) -> None:
        """Take in one of ansible-runner's events; kinds that do not matter here are passed over."""
        kind, data = str(event.get("event", "")), event.get("event_data") or {}
        if kind == "playbook_on_stats":
            self._verdicts(data)
        host = data.get("host")
        if not host or not kind.startswith("runner_"):
            return
        node = self.nodes.setdefault(str(host), NodeState())
        node.phase, node.task = str(data.get("role") or NO_ROLE), str(data.get("task") or "")
        self.phases.setdefault(node.phase, 0.0)
        if kind in _ENDINGS:
            self._ended(kind, data, node)

    def _ended(self, kind: str, data: Mapping[str, Any], node: NodeState) -> None:
        key = (node.phase, str(data["host"]))
        self._seconds[key] = self._seconds.get(key, 0.0) + float(data.get("duration") or 0.0)
        self.phases[node.phase] = max(self.phases[node.phase], self._seconds[key])
        if kind == "runner_on_ok":
            node.done += 1
            if (data.get("res") or {}).get("changed"):
                node.changed += 1
                node.changes.append(f"{node.phase}: {node.task.removeprefix(f'{node.phase} : ')}")
        elif kind == "runner_on_skipped":
            node.skipped += 1
        elif not data.get("ignore_errors"):
            node.failure = failure_of(data, unreachable=kind == "runner_on_unreachable", tasks_before=node.done)

    def _verdicts(self, stats: Mapping[str, Any]) -> None:
        """Failures that were rescued do not count; the playbook's own statistics know which."""
        self.finished = True
        for kinds, verdict in (
            (("ok", "processed", "skipped"), "ok"),
            (("failures",), "failed"),
            (("dark",), "unreachable"),
        ):
            for kind in kinds:
                for host, count in (stats.get(kind) or {}).items():
                    if count:
                        self.nodes.setdefault(str(host), NodeState()).verdict = verdict
        for host, count in (stats.get("changed") or {}).items():
            self.nodes.setdefault(str(host), NodeState()).changed = int(count)

    @property
    def failed(self) -> dict[str, NodeState]:
        """Nodes that did not come through; a playbook that was cut short leaves all of its nodes there."""
        return {name: node for name, node in self.nodes.items() if node.verdict != "ok"}


_ENDINGS = {"runner_on_ok", "runner_on_failed", "runner_on_unreachable", "runner_on_skipped"}


def remaining_s(earlier: Mapping[str, float], so_far: Mapping[str, float], elapsed_in_phase_s: float) -> float | None:
    """Seconds that the rest takes if it goes as the last run did; None without a last run.

    Args:
        earlier: seconds of each phase in the last run that came through.
        so_far: phases of this run in the order in which they came; the last one is under way.
        elapsed_in_phase_s: seconds since the current phase began.
    """
    if not earlier:
        return None
    current = list(so_far)[-1] if so_far else ""
    ahead = sum(seconds for name, seconds in earlier.items() if name not in so_far)
    return ahead + max(earlier.get(current, 0.0) - elapsed_in_phase_s, 0.0)
