"""CUDA graphs: the largest decode step of a variant against the largest size that is captured."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.preflight import checkpoints as made
from tests.unit.preflight.checkpoints import codes, drafted

from outrider.preflight import run_preflight
from outrider.stack import find_stack

if TYPE_CHECKING:
    from pathlib import Path

    from outrider.preflight.report import Finding
    from outrider.stack import Stack

SCHEDULE = [[1, 32, 5], [33, 128, 1]]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made.llama_target().write(tmp_path_factory.mktemp("target"))


def stack(k: int, users: int, *, compilation: Any = None, speculation: Any = None, **changes: Any) -> Stack:
    changes["flags"] = changes.get("flags", {}) | ({"compilation-config": compilation} if compilation else {})
    return made.stack(drafted("ngram", k) | (speculation or {}), memory={"max_num_seqs": users}, **changes)


def graphs(checked: Stack, target: Path, variant: str = "drafted") -> list[Finding]:
    return [f for f in run_preflight(checked, variant, model_dir=target).findings if f.code == "GRAPH001"]


def test_the_evidence_has_the_numbers_and_the_fix_a_size_that_covers_them(target: Path) -> None:
    (finding,) = graphs(stack(5, 128), target)
    assert finding.severity == "advisory"
    assert "128 requests x 6 tokens are 768 a step" in finding.evidence
    assert "the largest graph holds 512 (the engine's ceiling of 512)" in finding.evidence
    assert "more than 85 requests run eagerly" in finding.evidence
    assert "{max_cudagraph_capture_size: 768}" in finding.fix
    assert "`memory.max_num_seqs` to 85" in finding.fix


@pytest.mark.parametrize(("k", "users"), [(5, 128), (2, 171), (6, 128), (7, 1000), (3, 129)])
def test_taking_the_advice_ends_the_finding(target: Path, k: int, users: int) -> None:
    (finding,) = graphs(stack(k, users, flags={"max-num-batched-tokens": 16384}), target)
    advised = re.search(r"max_cudagraph_capture_size: (\d+)", finding.fix)
    assert advised is not None
    size = int(advised[1])
    # The V1 runner rounds captured sizes to multiples of k+1 and drops what then lies above the largest.
    assert size % (k + 1) == 0
    taken = {"max_cudagraph_capture_size": size}
    assert graphs(stack(k, users, compilation=taken, flags={"max-num-batched-tokens": 16384}), target) == []
    fewer = re.search(r"max_num_seqs` to (\d+)", finding.fix)
    assert fewer is not None
    assert graphs(stack(k, int(fewer[1]), flags={"max-num-batched-tokens": 16384}), target) == []


@pytest.mark.parametrize(
    ("k", "users", "changes", "largest"),
    [
        (3, 128, {}, None),
        (3, 129, {}, 512),
        (5, 86, {}, 512),
        (5, 85, {}, None),
        (7, 128, {"accelerator": "B200"}, None),
        (7, 129, {"accelerator": "B200"}, 1024),
        (7, 65, {"accelerator": "RTX PRO 6000 Blackwell"}, 512),
        (5, 128, {"compilation": {"max_cudagraph_capture_size": 768}}, None),
        (5, 128, {"compilation": '{"max_cudagraph_capture_size": 768}'}, None),
        (5, 128, {"flags": {"max-cudagraph-capture-size": 768}}, None),
        (5, 128, {"compilation": {"max_cudagraph_capture_size": 767}}, 752),
        (3, 8, {"compilation": {"max_cudagraph_capture_size": 16}}, 16),
        (5, 128, {"compilation": {"cudagraph_capture_sizes": [6, 384, 768]}}, None),
        (5, 128, {"compilation": {"cudagraph_capture_sizes": [6, 384]}}, 384),
        (5, 128, {"flags": {"cudagraph-capture-sizes": [768]}}, None),
        (3, 128, {"flags": {"max-num-batched-tokens": 256}}, 256),
        (5, 128, {"compilation": {"max_cudagraph_capture_size": 768}, "flags": {"max-num-batched-tokens": 512}}, 512),
    ],
)
def test_what_is_captured_follows_the_engine_s_rules(
    target: Path, k: int, users: int, changes: dict[str, Any], largest: int | None
) -> None:
    found = graphs(stack(k, users, **changes), target)
    assert [f"the largest graph holds {largest} (" in f.evidence for f in found] == [True] * (largest is not None)


@pytest.mark.parametrize(
    "changes",
    [
        {"build": "cpu", "version": "0.32.0"},
        {"flags": {"enforce-eager": True}},
        {"compilation": {"cudagraph_mode": "NONE"}},
        {"flags": {"optimization-level": "O0"}},
        {"compilation": "-O3 as somebody wrote it"},
    ],
)
def test_nothing_is_said_where_no_graph_is_wanted_or_the_setting_is_not_understood(
    target: Path, changes: dict[str, Any]
) -> None:
    assert graphs(stack(7, 256, **changes), target) == []


def test_a_plain_variant_is_held_against_one_token_a_request(target: Path) -> None:
    assert graphs(stack(5, 512), target, "baseline") == []
    (finding,) = graphs(stack(5, 513), target, "baseline")
    assert "513 requests x 1 tokens are 513 a step" in finding.evidence


@pytest.mark.parametrize(
    ("changes", "tokens"),
    [
        ({"schedule": SCHEDULE}, None),
        ({"schedule": SCHEDULE, "auto": True}, 768),
        ({"schedule": [[1, 100, 5], [101, 128, 1]]}, 600),
        ({"schedule": [[1, 10, 1], [11, 64, 5]]}, 768),
        ({"schedule": [[1, 500, 5], [501, 600, 0]]}, 768),
    ],
)
def test_a_schedule_is_judged_by_its_widest_step_and_auto_by_any_k(
    target: Path, changes: dict[str, Any], tokens: int | None
) -> None:
    found = graphs(stack(5, 128, speculation=changes), target)
    assert [f"are {tokens} a step" in f.evidence for f in found] == [True] * (tokens is not None)


def test_a_step_that_may_not_be_scheduled_needs_more_than_a_graph(target: Path) -> None:
    (finding,) = graphs(stack(5, 128, flags={"max-num-batched-tokens": 600}), target)
    assert "max-num-batched-tokens to 768 or more" in finding.fix
    (finding,) = graphs(stack(5, 128, compilation={"cudagraph_capture_sizes": [8]}), target)
    assert "Add sizes up to 768 to cudagraph_capture_sizes, multiples of 6; or" in finding.fix
    (finding,) = graphs(stack(5, 128, compilation={"cudagraph_capture_sizes": [4]}), target)
    assert finding.evidence.endswith("every step runs eagerly")
    assert finding.fix.endswith("multiples of 6.")
    assert graphs(stack(5, 128, flags={"max-num-batched-tokens": 5}), target) == []


@pytest.mark.parametrize("name", ["kimi-k2.5-rtx6000x8", "kimi-shape8-h200", "smollm2-cpu", "smollm2-h200"])
def test_no_stack_that_ships_decodes_without_graphs(name: str) -> None:
    assert "GRAPH001" not in codes(run_preflight(find_stack(name)).findings)
