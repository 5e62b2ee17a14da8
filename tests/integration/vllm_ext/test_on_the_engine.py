"""The utility scheduler on the real CPU engine: it follows the traffic and changes no answer; a fault costs nothing."""

from __future__ import annotations

import dataclasses
import json
import threading
from typing import TYPE_CHECKING

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from outrider.engine import adapter
from outrider.engine.vllm_utility import FLAGS
from outrider.model_store import locate
from outrider.runtime import ports
from outrider.runtime.local import LocalRuntime
from outrider.stack import find_stack

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from outrider.engine.base import Launch
    from outrider.runtime.running import LocalRunning

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(900)]

STACK = find_stack("smollm2-cpu")
COPY = "Copy this list exactly: " + ", ".join(f"item {i} costs {i * 7 % 50} euros" for i in range(24)) + ". Copy:"
CHAT = [
    "Why is the sky blue?", "Name a use of copper.", "What does a baker do?", "How do boats float?", "Who was Euclid?",
    "Describe a forest.", "What is rain?", "Tell me about cats.",
]  # fmt: skip
DRAFTS, DRAFT_TOKENS = "vllm:spec_decode_num_drafts_total", "vllm:spec_decode_num_draft_tokens_total"
FAULTY = """
from outrider.vllm_ext.scheduler import UtilityScheduler


class FaultyScheduler:
    def __new__(cls, **kwargs):
        scheduler = UtilityScheduler(**kwargs)
        observe, seen = scheduler.utility.controller.observe, []

        def explode(*step):
            seen.append(step)
            if len(seen) > 20:
                scheduler.dynamic_sd_lookup[:] = [0] * len(scheduler.dynamic_sd_lookup)
                raise ZeroDivisionError("injected")
            return observe(*step)

        scheduler.utility.controller.observe = explode
        return scheduler
"""


def launch(variant: str, **settings: object) -> Launch:
    """A variant in float32, where another batch shape does not round a token into another one."""
    located = locate(STACK, variant)
    made = adapter("vllm").launch(
        STACK, variant, host="127.0.0.1", port=ports.free_port(8160), model_dir=located.model_dir,
        drafter_dir=located.drafter_dir,
    )  # fmt: skip
    argv = tuple("float32" if word == "bfloat16" else word for word in made.argv)
    env = dict(made.env)
    if settings:
        env["OUTRIDER_UTILITY"] = json.dumps(settings)
    return dataclasses.replace(made, argv=argv, env=env)


def answers(
    engine: LocalRunning, prompts: Sequence[str], concurrency: int, max_tokens: int = 128, temperature: float = 0.0
) -> list[str]:
    """Completions, greedy unless told otherwise, in the order of the prompts."""
    found = [""] * len(prompts)
    turns = iter(range(len(prompts)))
    lock = threading.Lock()

    def user() -> None:
        while True:
            with lock:
                index = next(turns, None)
            if index is None:
                return
            body = {"model": STACK.target.served_name, "prompt": prompts[index], "max_tokens": max_tokens,
                    "temperature": temperature, "seed": index, "ignore_eos": True}  # fmt: skip
            answer = httpx.post(f"{engine.url}/v1/completions", json=body, timeout=300)
            answer.raise_for_status()
            found[index] = answer.json()["choices"][0]["text"]

    users = [threading.Thread(target=user) for _ in range(concurrency)]
    for thread in users:
        thread.start()
    for thread in users:
        thread.join()
    return found


def metrics(engine: LocalRunning) -> dict[tuple[str, ...], float]:
    """Values by name and those labels that tell batches, k and kinds apart."""
    text, kept = httpx.get(f"{engine.url}/metrics", timeout=60).text, ("batch", "k", "kind")
    return {
        (sample.name, *(f"{name}={sample.labels[name]}" for name in kept if name in sample.labels)): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith(("outrider_utility_", "vllm:spec_decode_num_draft"))
    }


def workload(engine: LocalRunning) -> list[str]:
    """Copying by one user, then chat of eight."""
    return [*answers(engine, [COPY] * 2, 1), *answers(engine, CHAT, 8)]


def test_it_follows_a_change_of_traffic_and_changes_no_answer(tmp_path: Path, smollm2_dir: Path) -> None:
    runtime = LocalRuntime(tmp_path / "state")
    with runtime.start("smollm2-cpu/baseline", launch("baseline")) as engine:
        expected = workload(engine)
    # A prior that is wrong for copying, so that leaving it is the controller's doing.
    with runtime.start("smollm2-cpu/auto", launch("ngram-auto", prior=[[1, 32, 0]], ks=[0, 1, 2, 3])) as engine:
        assert answers(engine, [COPY] * 2, 1) == expected[:2]
        alone = metrics(engine)
        assert answers(engine, CHAT, 8) == expected[2:]
        together = metrics(engine)
        log = list(engine.log_lines())

    assert alone["outrider_utility_k", "batch=1"] > 0
    assert alone["outrider_utility_ratio", "batch=1", "k=3"] > 1.1
    assert alone["outrider_utility_switches_total", "batch=1"] >= 1
    assert any("utility: batch 1: k 0 -> " in line and "tokens a step" in line for line in log)
    assert together["outrider_utility_fault",] == 0
    assert any(key[0] == "outrider_utility_k" and key[1] in {"batch=7-8", "batch=5-6"} for key in together)
    assert together["outrider_utility_steps_total", "kind=clean"] > alone["outrider_utility_steps_total", "kind=clean"]
    assert not any("Traceback" in line for line in log)


def test_with_a_drafter_k_follows_the_traffic_up_and_down_and_greedy_answers_are_the_static_variants(
    tmp_path: Path, smollm2_dir: Path
) -> None:
    runtime = LocalRuntime(tmp_path / "state")
    with runtime.start("smollm2-cpu/eagle3", launch("eagle3")) as engine:
        expected = workload(engine)
    # A prior that is wrong for copying, which this head drafts well. What is sampled at temperature 2, the most that
    # the engine takes, hardly anybody could draft.
    with runtime.start("smollm2-cpu/auto", launch("eagle3-auto", prior=[[1, 32, 0]], ks=[0, 1, 2, 3])) as engine:
        assert answers(engine, [COPY] * 2, 1) == expected[:2]
        copied = metrics(engine)
        for _ in range(5):  # how many steps it takes depends on how long it had been right
            answers(engine, CHAT, 1, temperature=2.0)
            sampled = metrics(engine)
            if sampled["outrider_utility_k", "batch=1"] < copied["outrider_utility_k", "batch=1"]:
                break
        assert answers(engine, CHAT, 8) == expected[2:]
        together = metrics(engine)
        log = list(engine.log_lines())

    force, changes = ("outrider_utility_k", "batch=1"), ("outrider_utility_switches_total", "batch=1")
    assert copied[force] > 0, "from the prior's 0"
    assert copied["outrider_utility_ratio", "batch=1", f"k={copied[force]:.0f}"] > 1.1
    assert copied["outrider_utility_tokens_per_step", "k=3"] > 1.5
    assert sampled[force] < copied[force], "in the same band, after the traffic changed"
    assert sampled[changes] > copied[changes] >= 1
    assert sampled["outrider_utility_tokens_per_step", "k=1"] < 1.4
    assert any("utility: batch 1: k 0 -> " in line for line in log)
    assert any(f"utility: batch 1: k {copied[force]:.0f} -> " in line for line in log)
    assert together["outrider_utility_exported",] == 1
    assert together["outrider_utility_fault",] == 0
    assert any(key[0] == "outrider_utility_k" and key[1] in {"batch=7-8", "batch=5-6"} for key in together)
    assert not any("Traceback" in line for line in log)


@pytest.mark.parametrize("variant", ["ngram-auto", "eagle3-auto"])
def test_a_fault_inside_leaves_the_engine_with_its_static_schedule(
    tmp_path: Path, smollm2_dir: Path, variant: str
) -> None:
    (tmp_path / "faulty.py").write_text(FAULTY)
    made = launch(variant)
    argv = tuple("faulty.FaultyScheduler" if word == FLAGS[1] else word for word in made.argv)
    runtime = LocalRuntime(tmp_path / "state")
    made = dataclasses.replace(made, argv=argv, env=made.env | {"PYTHONPATH": f"{tmp_path}:{_sources()}"})
    with runtime.start("smollm2-cpu/faulty", made) as engine:
        first = answers(engine, [COPY], 1)
        faulted = metrics(engine)
        assert answers(engine, [COPY], 1) == first
        later = metrics(engine)
        log = list(engine.log_lines())

    assert faulted["outrider_utility_fault",] == 1
    drafts, drafted = (later[name,] - faulted[name,] for name in (DRAFTS, DRAFT_TOKENS))
    assert drafts > 0
    assert 2 < drafted / drafts <= 3, "the static k is in force again"
    assert sum("utility: off, the static schedule is in force: ZeroDivisionError: injected" in x for x in log) == 1


def _sources() -> str:
    from outrider import vllm_ext  # noqa: PLC0415 - for its place only

    return str(next(iter(vllm_ext.__path__)).removesuffix("/outrider/vllm_ext"))
