"""Canaries against a small server that answers as it is told, and their judgement alone."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest

from outrider.engine.base import EngineScrape, SpecCounters
from outrider.runtime.canary import (
    SPEAKING,
    derived_floor,
    judge_acceptance,
    judge_agreement,
    judge_json,
    judge_question,
    plan_for,
    run_canaries,
)
from outrider.stack import find_stack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

STACK = find_stack("smollm2-cpu")


class Server(ThreadingHTTPServer):
    """Answers chats through `answer(prompt)`; the counters of its metrics grow by `accepted` and `drafts` a chat."""

    daemon_threads = True

    def __init__(self, answer: Callable[[str], str], drafts: int, accepted: int) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer, self.drafts, self.accepted = answer, drafts, accepted
        self.chats = 0
        self.keys: set[str | None] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def metrics(self) -> str:
        label = '{engine="0",model_name="smollm2-135m"}'
        return (
            f"vllm:generation_tokens_total{label} {self.chats * 64}.0\n"
            f"vllm:spec_decode_num_drafts_total{label} {self.chats * self.drafts}.0\n"
            f"vllm:spec_decode_num_draft_tokens_total{label} {self.chats * self.drafts * 3}.0\n"
            f"vllm:spec_decode_num_accepted_tokens_total{label} {self.chats * self.accepted}.0\n"
        )


class Handler(BaseHTTPRequestHandler):
    server: Server

    def log_message(self, *words: object) -> None:
        pass

    def do_GET(self) -> None:
        self.reply(200, self.server.metrics().encode())

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.chats += 1
        self.server.keys.add(self.headers.get("Authorization"))
        answer = self.server.answer(body["messages"][0]["content"])
        if answer == "HTTP 500":
            self.reply(500, b"broken")
        else:
            self.reply(200, json.dumps({"choices": [{"message": {"content": answer}}]}).encode())

    def reply(self, status: int, data: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def good(prompt: str) -> str:
    return '{"city": "Paris", "capital": true}' if "JSON" in prompt else f"It is Paris. {prompt}"


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    servers: list[Server] = []

    def start(answer: Callable[[str], str] = good, drafts: int = 30, accepted: int = 40) -> Server:
        servers.append(Server(answer, drafts, accepted))
        threading.Thread(target=servers[-1].serve_forever, daemon=True).start()
        return servers[-1]

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_a_fit_variant_passes_and_its_answers_are_kept(serve: Callable[..., Server]) -> None:
    server = serve()
    results, answers = run_canaries(server.url, plan_for(STACK, "eagle3"), key="s3cret")
    assert [(r.name, r.ok) for r in results] == [("question", True), ("json", True), ("acceptance", True)]
    assert "acceptance length 2.33, floor 1.55" in results[-1].evidence
    assert set(answers) == set(SPEAKING)
    assert server.keys == {"Bearer s3cret"}


def test_acceptance_below_the_floor_fails(serve: Callable[..., Server]) -> None:
    results, _ = run_canaries(serve(accepted=3).url, plan_for(STACK, "eagle3"))
    assert [r.name for r in results if r.failed] == ["acceptance"]
    assert "acceptance length 1.10, floor 1.55" in results[-1].evidence


def test_a_wrong_answer_fails_and_so_does_broken_json(serve: Callable[..., Server]) -> None:
    results, _ = run_canaries(serve(lambda _prompt: "It is Lyon.").url, plan_for(STACK, "baseline"))
    assert [r.name for r in results if r.failed] == ["question", "json"]


def test_a_server_that_breaks_is_a_failed_canary_and_no_exception(serve: Callable[..., Server]) -> None:
    server = serve(lambda prompt: "HTTP 500" if "JSON" in prompt else good(prompt))
    results, _ = run_canaries(server.url, plan_for(STACK, "baseline"))
    assert [(r.name, r.failed) for r in results] == [("question", False), ("json", True)]
    assert "500" in results[-1].evidence


def test_a_drafting_variant_that_counts_no_drafts_fails_where_a_floor_is_known() -> None:
    silent = EngineScrape(spec=SpecCounters(0, 0, 0))
    assert judge_acceptance(silent, 1.5).failed
    assert not judge_acceptance(silent, None).failed, "n-gram may find nothing to propose"
    assert judge_acceptance(EngineScrape(spec=None), None).failed, "an engine without the counters does not speculate"


def test_agreement_with_baseline_is_advisory() -> None:
    recorded = {"a": "one two three four", "b": "five"}
    apart = judge_agreement({"a": "on the contrary", "b": "six"}, recorded)
    assert apart is not None
    assert (apart.ok, apart.failed) == (False, False)
    same = judge_agreement(recorded, recorded)
    assert same is not None
    assert same.ok
    assert judge_agreement({"c": "x"}, recorded) is None


def test_the_floor_is_half_of_the_smallest_published_gain() -> None:
    assert derived_floor(STACK, "eagle3") == pytest.approx(1 + (2.11 - 1) / 2)
    assert derived_floor(STACK, "ngram") is None
    assert plan_for(STACK, "eagle3", al_floor=3.0).al_floor == 3.0


@pytest.mark.parametrize("answer", ["", "Paris", "[1]", '{"city": "Paris"}', '{"city": "Paris", "capital": "yes"}'])
def test_json_that_is_not_what_was_asked_for_fails(answer: str) -> None:
    assert judge_json(answer).failed


def test_the_question_is_judged_by_what_the_answer_contains() -> None:
    assert judge_question("That is PARIS, of course.", "Paris").ok
    assert judge_question("Lyon", "Paris").failed
