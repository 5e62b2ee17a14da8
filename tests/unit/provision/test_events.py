"""Events of ansible-runner as the state of nodes, and the time that is left."""

from __future__ import annotations

from typing import Any

import pytest

from outrider.provision.events import Progress, remaining_s


def event(kind: str, host: str = "a", role: str = "driver", **data: Any) -> dict[str, Any]:
    return {"event": kind, "event_data": {"host": host, "role": role, "task": "Install", **data}}


def stats(**counts: dict[str, int]) -> dict[str, Any]:
    return {"event": "playbook_on_stats", "event_data": counts}


def fed(*events: dict[str, Any]) -> Progress:
    progress = Progress()
    for one in events:
        progress.take(one)
    return progress


def test_tasks_are_counted_and_the_slowest_node_times_a_phase() -> None:
    progress = fed(
        event("runner_on_ok", "a", duration=3.0, res={"changed": True}),
        event("runner_on_ok", "b", duration=5.0, res={}),
        event("runner_on_skipped", "b", duration=0.5),
    )
    assert (progress.nodes["a"].done, progress.nodes["a"].changed) == (1, 1)
    assert (progress.nodes["b"].done, progress.nodes["b"].changed, progress.nodes["b"].skipped) == (1, 0, 1)
    assert progress.phases == {"driver": 5.5}
    assert (progress.nodes["a"].changes, progress.nodes["b"].changes) == (["driver: Install"], [])


def test_the_end_says_which_node_came_through() -> None:
    failed = event("runner_on_failed", "b", res={"msg": "no"})
    progress = fed(event("runner_on_ok", "a", res={}), failed, stats(ok={"a": 1}, failures={"b": 1}, dark={"c": 1}))
    assert {name: node.verdict for name, node in progress.nodes.items()} == {
        "a": "ok",
        "b": "failed",
        "c": "unreachable",
    }
    assert set(progress.failed) == {"b", "c"}


def test_a_rescued_failure_does_not_fail_its_node() -> None:
    assert fed(event("runner_on_failed", res={"msg": "no"}), stats(ok={"a": 2}, rescued={"a": 1})).failed == {}


def test_a_playbook_that_was_cut_short_leaves_its_nodes_unfinished() -> None:
    progress = fed(event("runner_on_ok", res={}))
    assert not progress.finished
    assert set(progress.failed) == {"a"}


@pytest.mark.parametrize("broken", [{}, {"event": "verbose"}, {"event": "runner_on_ok", "event_data": None}])
def test_events_of_other_kinds_are_passed_over(broken: dict[str, Any]) -> None:
    assert fed(broken).nodes == {}


@pytest.mark.parametrize(
    ("so_far", "in_phase", "expected"),
    [
        ({}, 0.0, 60.0),
        ({"host": 1.0}, 4.0, 56.0),
        ({"host": 1.0}, 99.0, 50.0),
        ({"host": 9.0, "driver": 1.0}, 20.0, 30.0),
        ({"host": 9.0, "driver": 1.0, "new": 2.0}, 20.0, 0.0),
    ],
)
def test_the_rest_takes_what_it_took_last_time(so_far: dict[str, float], in_phase: float, expected: float) -> None:
    assert remaining_s({"host": 10.0, "driver": 50.0}, so_far, in_phase) == expected


def test_without_an_earlier_run_the_rest_is_unknown() -> None:
    assert remaining_s({}, {"host": 1.0}, 0.5) is None
