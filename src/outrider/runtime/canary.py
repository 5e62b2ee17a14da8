"""Canaries: a few real requests that a freshly started variant must pass before it takes the place of another.

    results = run_canaries(url, plan, key=None)
    failed = [r for r in results if r.failed]

Each canary asks for something that any working target gets right; what is merely unusual is advisory. Requests go one
after the other, greedily, so that a run takes seconds.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from os.path import commonpath
from typing import TYPE_CHECKING, Any

import httpx

from outrider.engine import adapter
from outrider.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from outrider.engine import EngineScrape
    from outrider.stack import Stack

_TIMEOUT_S = 120.0
_QUESTION = ("What is the capital of France?", "Paris")
_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": ["Paris", "Berlin", "Madrid"]}, "capital": {"type": "boolean"}},
    "required": ["city", "capital"],
    "additionalProperties": False,
}
# Prompts whose answers repeat what they were given: every way of speculating finds something to propose.
SPEAKING = (
    "Repeat this sentence three times: The quick brown fox jumps over the lazy dog.",
    "Explain in a few sentences how a bicycle works.",
    "List the numbers from one to twenty in words, one a line.",
    "Write a short letter to a friend about a walk in the rain.",
)
SPEAKING_TOKENS = 64
# Half of the smallest gain that a drafter's authors publish: below that, it is not the drafter that they measured.
_SHARE_OF_REPORTED_GAIN = 0.5
_AGREEMENT = 0.5


@dataclass(frozen=True, slots=True)
class Canary:
    """One canary's outcome.

    Attributes:
        name: `question`, `json`, `agreement` or `acceptance`.
        ok: whether it was as it should be.
        advisory: whether a failure is only shown.
        evidence: what was seen.
    """

    name: str
    ok: bool
    evidence: str
    advisory: bool = False

    @property
    def failed(self) -> bool:
        """Whether it stands against the variant."""
        return not self.ok and not self.advisory


@dataclass(frozen=True, slots=True)
class Plan:
    """What is asked of a variant.

    Attributes:
        model: name under which the target is served.
        engine: name of its adapter.
        question: prompt and what the answer must contain.
        speculates: whether acceptance is expected to be counted.
        al_floor: acceptance length under which the variant fails; None: it is shown only.
        baseline: prompt to baseline's recorded answer; empty: not recorded.
    """

    model: str
    engine: str
    question: tuple[str, str]
    speculates: bool
    al_floor: float | None
    baseline: Mapping[str, str]


def plan_for(
    stack: Stack, variant: str, *, al_floor: float | None = None, baseline: Mapping[str, str] | None = None
) -> Plan:
    """The canaries of a variant; `al_floor` takes the place of the floor that its drafter's figures give."""
    spec = stack.variant(variant).speculation
    source = stack.target.source
    return Plan(
        model=stack.target.served_name,
        engine=stack.engine_of(variant).name,
        question=(source.probe_prompt, source.probe_answer) if source else _QUESTION,
        # Where k is chosen at run time it may be 0 by then.
        speculates=spec is not None and not spec.auto,
        al_floor=al_floor if al_floor is not None else derived_floor(stack, variant),
        baseline=baseline or {},
    )


def derived_floor(stack: Stack, variant: str) -> float | None:
    """Acceptance length below which a drafter is not what its authors measured; None where none is published."""
    spec = stack.variant(variant).speculation
    # Acceptance length grows with k, so a floor holds for the k that the authors measured and for no mixture.
    reported = spec.drafter.reported_al if spec and spec.drafter and not spec.auto else {}
    return 1 + _SHARE_OF_REPORTED_GAIN * (min(reported.values()) - 1) if reported else None


def judge_question(answer: str, expected: str) -> Canary:
    """The answer must contain what it must contain."""
    return Canary("question", expected.lower() in answer.lower(), f"{answer[:120]!r}, expected {expected!r} in it")


def judge_json(answer: str) -> Canary:
    """The answer must be the JSON object that was asked for."""
    try:
        found = json.loads(answer)
    except ValueError as error:
        return Canary("json", ok=False, evidence=f"{answer[:120]!r} does not parse: {error}")
    fits = isinstance(found, dict) and set(found) == set(_SCHEMA["required"]) and isinstance(found["capital"], bool)
    return Canary("json", fits, json.dumps(found)[:120])


def judge_agreement(answers: Mapping[str, str], baseline: Mapping[str, str]) -> Canary | None:
    """Mean share of baseline's answers that begins the same; advisory, because BF16 need not round alike."""
    shares = [
        len(commonpath([answer, baseline[prompt]])) / max(len(baseline[prompt]), 1)
        for prompt, answer in answers.items()
        if prompt in baseline
    ]
    if not shares:
        return None
    mean = sum(shares) / len(shares)
    return Canary(
        "agreement", mean >= _AGREEMENT, f"{mean:.0%} of baseline's recorded answers begin the same", advisory=True
    )


def judge_acceptance(window: EngineScrape, floor: float | None) -> Canary:
    """Acceptance length over the canaries against its floor."""
    al = window.spec.acceptance_length if window.spec else None
    if al is None:
        seen = "the engine drafted nothing" if window.spec else "the engine counts no drafts: it does not speculate"
        return Canary("acceptance", ok=False, evidence=seen, advisory=floor is None and window.spec is not None)
    text = f"acceptance length {al:.2f}" + (f", floor {floor:.2f}" if floor is not None else ", no floor is known")
    return Canary("acceptance", floor is None or al >= floor, text)


def run_canaries(
    url: str, plan: Plan, *, key: str | None = None, on_result: Callable[[Canary], None] = lambda _result: None
) -> tuple[list[Canary], dict[str, str]]:
    """Ask a served variant; gives the outcomes and its answers to the fixed prompts.

    A request that is refused or breaks is a failed canary, not an error: the variant is judged, not the caller.
    """
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    results: list[Canary] = []
    answers: dict[str, str] = {}

    def note(result: Canary | None) -> None:
        if result is not None:
            results.append(result)
            on_result(result)

    with httpx.Client(base_url=url, timeout=_TIMEOUT_S, headers=headers, trust_env=False) as client:
        step = "question"
        try:
            note(judge_question(_ask(client, plan, plan.question[0], 48), plan.question[1]))
            step = "json"
            form = {"type": "json_schema", "json_schema": {"name": "city", "schema": _SCHEMA, "strict": True}}
            prompt = "Answer in JSON: which city is the capital of France?"
            note(judge_json(_ask(client, plan, prompt, 64, response_format=form)))
            step = "acceptance" if plan.speculates else "agreement"
            before = _scrape(client, plan)
            answers = {prompt: _ask(client, plan, prompt, SPEAKING_TOKENS) for prompt in SPEAKING}
            if plan.speculates:
                note(judge_acceptance(_scrape(client, plan).since(before), plan.al_floor))
            note(judge_agreement(answers, plan.baseline))
        except (httpx.HTTPError, EngineError, ValueError, LookupError, TypeError) as error:
            note(Canary(step, ok=False, evidence=f"{type(error).__name__}: {error}"))
    return results, answers


def _ask(client: httpx.Client, plan: Plan, prompt: str, max_tokens: int, **more: object) -> str:
    body = {
        "model": plan.model,
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": max_tokens,
        "temperature": 0,
        **more,
    }
    response = client.post("/v1/chat/completions", json=body)
    response.raise_for_status()
    message = response.json()["choices"][0]["message"]
    # A reasoning target may spend its tokens before it answers: what it thought counts as said.
    return (message.get("reasoning_content") or message.get("reasoning") or "") + (message.get("content") or "")


def _scrape(client: httpx.Client, plan: Plan) -> EngineScrape:
    response = client.get("/metrics")
    response.raise_for_status()
    return adapter(plan.engine).read_metrics(response.text)
