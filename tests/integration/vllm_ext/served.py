"""Engines of the embedded stack in float32, and traffic for them."""

from __future__ import annotations

import dataclasses
import itertools
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import httpx
from prometheus_client.parser import text_string_to_metric_families

from outrider.engine import adapter
from outrider.model_store import locate
from outrider.runtime import ports
from outrider.stack import find_stack

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from outrider.engine.base import Launch
    from outrider.runtime.local import LocalRuntime
    from outrider.runtime.running import LocalRunning

STACK = find_stack("smollm2-cpu")
COPY = "Copy this list exactly: " + ", ".join(f"item {i} costs {i * 7 % 50} euros" for i in range(24)) + ". Copy:"
CHAT = [
    "Why is the sky blue?", "Name a use of copper.", "What does a baker do?", "How do boats float?", "Who was Euclid?",
    "Describe a forest.", "What is rain?", "Tell me about cats.",
]  # fmt: skip
_TURNS = itertools.count()  # an engine binds its port long after it was chosen


def launch(variant: str, **settings: object) -> Launch:
    """A variant in float32, where another batch shape does not round a token into another one."""
    located = locate(STACK, variant)
    made = adapter("vllm").launch(
        STACK, variant, host="127.0.0.1", port=ports.free_port(7300 + 10 * next(_TURNS)), model_dir=located.model_dir,
        drafter_dir=located.drafter_dir,
    )  # fmt: skip
    argv = tuple("float32" if word == "bfloat16" else word for word in made.argv)
    env = dict(made.env)
    if settings:
        env["OUTRIDER_UTILITY"] = json.dumps(settings)
    return dataclasses.replace(made, argv=argv, env=env)


@contextmanager
def side_by_side(runtime: LocalRuntime, launches: Mapping[str, Launch]) -> Iterator[dict[str, LocalRunning]]:
    """Serves several at once: a start is the work of one core for most of its time."""

    def start(name: str) -> LocalRunning:
        return runtime.start(f"smollm2-cpu/{name}", launches[name])

    with ExitStack() as stop:
        with ThreadPoolExecutor(len(launches)) as pool:
            starts = {name: pool.submit(start, name) for name in launches}
        for future in starts.values():
            if not future.exception():
                stop.enter_context(future.result())
        yield {name: future.result() for name, future in starts.items()}


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
        if sample.name.startswith(("outrider_utility_", "vllm:spec_decode_num_"))
    }
