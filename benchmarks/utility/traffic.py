"""One phase of traffic against one engine: what users saw of it, prompt by prompt."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import httpx
from prometheus_client.parser import text_string_to_metric_families

from outrider.errors import LoadError
from outrider.load import LoadPlan, run_load
from outrider.load.outcome import Outcome
from outrider.load.workloads import is_workload
from outrider.predict.acceptance import Acceptance

if TYPE_CHECKING:
    from outrider.load.result import RequestRecord
    from outrider.stack import Stack


@dataclass(frozen=True, slots=True)
class Phase:
    """A workload and how many users send it; written `chat@8`.

    Attributes:
        workload: its name.
        users: at once.
        rates: what is accepted of their drafts, by position and counted from the first; for engines under synthetic
            acceptance, whose own text says nothing. Written `random-64@8~0.6/0.4/0.3`. Empty: as the variant says.
    """

    workload: str
    users: int
    rates: tuple[float, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `chat@8`.

        Raises:
            ValueError: it is not of that form, or there is no such workload.
            PredictError: a rate is outside 0-1 or larger than the one before.
        """
        traffic, _, accepted = text.partition("~")
        rates = Acceptance.of_positions(_numbers(accepted), text).positions if accepted else ()
        workload, _, users = traffic.partition("@")
        if not users.isdigit() or not int(users):
            raise ValueError(f"{text!r}: a phase is WORKLOAD@USERS, such as chat@8")
        if not is_workload(workload):
            raise ValueError(f"{text!r}: there is no workload {workload!r} (docs/workloads.md)")
        return cls(workload, int(users), rates)

    def __str__(self) -> str:
        accepted = "/".join(map(str, self.rates))
        return f"{self.workload}@{self.users}{accepted and f'~{accepted}'}"


def _numbers(text: str) -> list[float]:
    try:
        return [float(word) for word in text.split("/")]
    except ValueError:
        raise ValueError(f"{text!r}: rates are numbers from 0 to 1, such as 0.6/0.4/0.3") from None


@dataclass(frozen=True, slots=True)
class Pace:
    """How each phase is sent.

    Attributes:
        seconds: for which requests are measured, after one request of each user as warm-up.
        max_tokens: of an answer, whatever the prompt's own limit is. Where many users get short answers, nearly every
            step holds somebody's prefill, and such steps tell nothing about k.
        stream_interval: tokens that the server gathers before it sends a chunk. On a fast engine a chunk a step and
            user costs its server more time than the step takes the engine, and that would be measured instead.
    """

    seconds: float
    max_tokens: int
    stream_interval: int


def accept(url: str, phase: Phase, k: int) -> None:
    """Have an engine that may draft k tokens accept what a phase says from now on.

    Raises:
        LoadError: it does not do so.
    """
    known = Acceptance.of_positions(phase.rates, str(phase))
    rates = [round(known.tokens(n + 1) - known.tokens(n), 4) for n in range(k)]
    asked = {"method": "accept_synthetically", "args": [json.dumps(rates)]}
    answer = httpx.post(f"{url}/collective_rpc", json=asked, timeout=60)
    if answer.is_error:
        raise LoadError(
            f"the engine does not accept what phase {phase} says",
            evidence=f"{answer.status_code}: {answer.text[:300]}",
            next_step="its log says why; its variant needs rejection_sample_method: synthetic",
        )


def run_phase(stack: Stack, url: str, phase: Phase, pace: Pace, *, seed: int, salt: str = "") -> dict[str, Any]:
    """Load an engine with one phase; prompts of another `salt` are not found in its prefix cache.

    Returns:
        plain figures for a JSON line: `tpot_s` (mean over requests), `tpot_by_prompt` (id to count and mean, so that
        variants are compared on the prompts that all of them answered), and what tells whether to believe them.

    Raises:
        LoadError: no request ended well.
    """
    plan = LoadPlan(
        url=url,
        model=stack.target.served_name,
        workload=phase.workload,
        prompt_seed=seed,
        arrivals={"kind": "closed", "concurrency": phase.users},  # type: ignore[arg-type]
        duration_s=pace.seconds,
        max_tokens=pace.max_tokens,
        engine=stack.engine.name,
        keep_text=False,
        extra_body={
            "max_tokens": pace.max_tokens,
            "stream_interval": pace.stream_interval,
            "cache_salt": f"{phase.workload}{phase.users}{seed}{salt and f'-{salt}'}",
        },
    )
    outcome = run_load(plan)
    result, engine, client = outcome.result, outcome.result.engine, outcome.result.client
    if result.tpot_s.mean is None:
        raise LoadError(
            f"phase {phase} has no figure: {result.requests} requests, none of which could be timed",
            evidence="; ".join(f"{f.code}: {f.evidence}" for f in result.validity) or str(result.errors),
            next_step="give it more seconds, or look at the engine's log",
        )
    return {
        "phase": str(phase),
        "users": phase.users,
        "window_s": round(result.window_s, 3),
        "requests": result.requests,
        "tpot_s": result.tpot_s.mean,
        "throughput_tok_s": result.throughput_tok_s,
        "tokens_per_step": engine.tokens_per_step if engine else None,
        "mean_running": engine.mean_running if engine else None,
        "client_cpu": client.cpu_share if client else None,
        "status": result.status,
        "findings": [finding.code for finding in result.validity if finding.severity != "info"],
        "tpot_by_prompt": by_prompt(outcome.records),
    }


def by_prompt(records: list[RequestRecord]) -> dict[str, tuple[int, float]]:
    """Of measured requests that ended well: prompt to how many they were and their mean TPOT in seconds."""
    found: defaultdict[str, list[float]] = defaultdict(list)
    for record in records:
        if record.phase == "measured" and Outcome(record.outcome).ok and record.tpot_s is not None:
            found[record.prompt_id].append(record.tpot_s)
    return {name: (len(times), round(math.fsum(times) / len(times), 7)) for name, times in sorted(found.items())}


def utility_state(url: str) -> dict[str, Any]:
    """What the controller of an engine does now: k and utility by batch, and its counters so far."""
    state: dict[str, Any] = {"k": {}, "utility": {}, "steps": {}, "switches": 0, "tests": 0, "overhead_s": 0.0}
    for family in text_string_to_metric_families(httpx.get(f"{url}/metrics", timeout=60).text):
        for sample in family.samples:
            name, labels = sample.name.removeprefix("outrider_utility_"), sample.labels
            if name == sample.name:
                continue
            if name == "k":
                state["k"][labels["batch"]] = int(sample.value)
            elif name == "ratio":
                state["utility"].setdefault(labels["batch"], {})[labels["k"]] = round(sample.value, 4)
            elif name == "steps_total":
                state["steps"][labels["kind"]] = int(sample.value)
            elif name in {"switches_total", "tests_total"}:
                state[name.removesuffix("_total")] += int(sample.value)
            elif name == "overhead_seconds_total":
                state["overhead_s"] = sample.value
            elif name in {"fault", "exported"}:
                state[name] = int(sample.value)
    return state
