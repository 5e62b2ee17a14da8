"""Parity against made servers whose answers are known."""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.campaign.parity import (
    Answers,
    ParityPlan,
    ParityResult,
    collect_answers,
    common_prefix,
    compare_answers,
    run_parity,
)
from outrider.campaign.parity_tasks import load_tasks
from outrider.errors import CampaignError, LoadError

PLAN = ParityPlan(prompts_each=3)
SOLUTIONS = {t.ask: json.dumps(t.accepted[0]) if t.check == "json" else str(t.accepted[0]) for t in load_tasks()}


class Server:
    """Answers chat completions: tasks rightly except the first `wrong`, prompts with `text` of the question.

    Args:
        wrong: number of tasks that are answered wrongly.
        prompt_text: from the user's message to the answer, for prompts that are no tasks.
        token_ids: whether ids are returned; `forbidden` answers 400 to a request for them.
        broken: user messages to which the answer is status 500.
    """

    def __init__(self, wrong=0, prompt_text=lambda ask: ask, token_ids="yes", broken=()):
        self.wrong = set(list(SOLUTIONS)[:wrong])
        self.prompt_text = prompt_text
        self.token_ids = token_ids
        self.broken = broken
        self.bodies = []
        self.in_flight = self.most_in_flight = 0

    async def __call__(self, request):
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        await asyncio.sleep(0)
        self.in_flight -= 1
        body = json.loads(request.content)
        if self.token_ids == "forbidden" and "return_token_ids" in body:
            return httpx.Response(400, json={"error": {"message": "unknown field"}})
        self.bodies.append(body)
        ask = body["messages"][-1]["content"]
        if ask in self.broken and body["max_tokens"] > 1:
            return httpx.Response(500, text="engine dead")
        text = "wrong" if ask in self.wrong else SOLUTIONS.get(ask) or self.prompt_text(ask)
        choice = {"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        if self.token_ids == "yes":
            choice["token_ids"] = [ord(letter) for letter in text]
        return httpx.Response(200, json={"choices": [choice]})


def serve(a, b=None):
    servers = {"a": a, "b": b}
    return httpx.MockTransport(lambda request: servers[request.url.host](request))


def parity(a, b, plan=PLAN, **options):
    return asyncio.run(run_parity("http://a", "http://b/v1/", "m", plan, transport=serve(a, b), **options))


def half_way(ask):
    return ask[: len(ask) // 2] + "#" * (len(ask) - len(ask) // 2)


def test_equal_servers_agree_in_full_and_are_equivalent():
    result = parity(Server(), Server(), names=("baseline", "ngram"))
    assert result.agreement.share.mid == 1.0
    assert result.agreement.identical == 1.0
    assert result.agreement.unit == "tokens"
    assert result.noise_floor is not None
    assert result.noise_floor.share.mid == 1.0
    assert result.accuracy.a == result.accuracy.b == 1.0
    assert result.verdict == "equivalent"
    assert result.failures == []
    assert "agree over 100%" in result.summary
    assert "ngram" in result.summary


def test_the_common_prefix_is_measured_in_tokens():
    result = parity(Server(), Server(prompt_text=half_way))
    assert result.agreement.share.mid == pytest.approx(0.5, abs=0.02)
    assert result.agreement.identical == 0.0
    assert result.agreement_loss is not None
    assert result.agreement_loss.mid == pytest.approx(0.5, abs=0.02)
    assert set(result.agreement.by_category) == {"chat", "code", "edit", "reasoning"}
    assert result.agreement.prompts == 12


@pytest.mark.parametrize("how", ["no", "forbidden"])
def test_without_token_ids_characters_are_counted_and_labelled(how):
    result = parity(Server(), Server(prompt_text=half_way, token_ids=how))
    assert result.agreement.unit == "characters"
    assert result.agreement.share.mid == pytest.approx(0.5, abs=0.02)


def test_a_variant_that_answers_worse_is_called_lower_with_the_tasks_it_lost():
    result = parity(Server(wrong=2), Server(wrong=30))
    assert result.verdict == "lower"
    assert result.accuracy.difference.mid == pytest.approx(-28 / 128)
    assert len(result.accuracy.lost) == 28
    assert result.accuracy.gained == []
    assert result.accuracy.by_kind["copy"] == (12 / 14, 0.0)


def test_a_variant_that_answers_better_is_called_higher():
    assert parity(Server(wrong=30), Server()).verdict == "higher"


def test_a_few_changed_answers_do_not_decide():
    assert parity(Server(), Server(wrong=5)).verdict == "unclear"


def test_the_noise_floor_is_what_the_reference_does_to_itself():
    count = iter(range(10_000))
    restless = Server(prompt_text=lambda ask: ask + str(next(count)))
    result = parity(restless, restless)
    assert result.noise_floor is not None
    assert result.noise_floor.identical == 0.0
    assert result.agreement_loss is not None
    assert not result.agreement_loss.excludes(0.0)


def test_without_a_noise_floor_the_reference_is_asked_once():
    a, b = Server(), Server()
    result = parity(a, b, PLAN.model_copy(update={"noise_floor": False}))
    assert result.noise_floor is None
    assert result.agreement_loss is None
    assert len(a.bodies) == len(b.bodies)


def test_every_request_is_greedy_and_carries_the_extra_fields():
    a = Server()
    parity(a, Server(), ParityPlan(prompts_each=1, extra_body={"chat_template_kwargs": {"thinking": False}}))
    assert all(body["temperature"] == 0 and body["model"] == "m" for body in a.bodies)
    assert all(body["chat_template_kwargs"] == {"thinking": False} for body in a.bodies)
    assert {body["max_tokens"] for body in a.bodies} == {1, 48, 128}


def test_concurrency_is_used_and_not_exceeded():
    a = Server()
    parity(a, Server(), ParityPlan(prompts_each=2, concurrency=3))
    assert a.most_in_flight == 3


def test_progress_counts_to_the_total():
    seen = []
    parity(Server(), Server(), progress=lambda done, total: seen.append((done, total)))
    assert (152, 152) in seen
    assert (140, 140) in seen


def test_a_reasoning_model_is_compared_over_all_it_generates_and_judged_by_its_content():
    async def thinking(request):
        body = json.loads(request.content)
        ask = body["messages"][-1]["content"]
        message = {"content": SOLUTIONS.get(ask), "reasoning": f"about {ask}"}
        return httpx.Response(200, json={"choices": [{"message": message, "finish_reason": "length"}]})

    result = parity(thinking, thinking)
    assert result.agreement.share.mid == 1.0
    assert result.agreement.median_prefix > 10
    assert result.accuracy.a == 1.0


def test_a_failed_request_is_named_and_left_out():
    broken = load_tasks()[3]
    result = parity(Server(), Server(broken=(broken.ask,)), names=("baseline", "ngram"))
    assert result.failures == [f"ngram: {broken.id}: status 500: engine dead"]
    assert result.accuracy.tasks == len(load_tasks()) - 1
    assert result.accuracy.difference.dropped == 1


def test_too_many_failures_are_an_error_and_not_a_verdict():
    with pytest.raises(LoadError, match=r"left 20 of 140 requests unanswered\n.*status 500"):
        parity(Server(), Server(broken=tuple(list(SOLUTIONS)[:20])))


@pytest.mark.parametrize(
    ("response", "cause"),
    [
        (httpx.Response(404, text="no such model"), "status 404\n  seen: .*no such model"),
        (httpx.Response(401, text="key"), "status 401"),
        (httpx.ConnectError("refused"), "cannot be reached: ConnectError\n  seen: http://a"),
        (httpx.ReadTimeout("silent"), "cannot be reached: ReadTimeout"),
    ],
)
def test_an_endpoint_that_does_not_answer_is_reported_at_once(response, cause):
    def refuse(request):
        if isinstance(response, Exception):
            raise response
        return response

    with pytest.raises(LoadError, match=cause):
        asyncio.run(collect_answers("http://a", "m", PLAN, transport=httpx.MockTransport(refuse)))


@pytest.mark.parametrize(
    "payload", [b"{}", b"[]", b"not json", b'{"choices": []}', b'{"choices": [{"message": null}]}']
)
def test_a_response_that_is_no_completion_is_a_failure_of_that_request(payload):
    def odd(request):
        return httpx.Response(200, content=payload)

    with pytest.raises(LoadError, match="left 140 of 140 requests unanswered"):
        asyncio.run(collect_answers("http://a", "m", PLAN, transport=httpx.MockTransport(odd)))


def test_answers_survive_their_json_so_that_variants_can_be_served_in_turn():
    collected = asyncio.run(collect_answers("http://a", "m", PLAN, again=True, transport=serve(Server())))
    again = Answers.model_validate_json(collected.model_dump_json())
    assert compare_answers(again, collected, "m", PLAN) == compare_answers(collected, collected, "m", PLAN)


def test_variants_without_a_common_prompt_are_refused():
    with pytest.raises(CampaignError, match="no prompt was answered by both"):
        compare_answers(Answers(by_kind={}), Answers(by_kind={}), "m", PLAN)


def test_the_result_is_json_with_its_schema():
    text = parity(Server(), Server()).model_dump_json()
    assert json.loads(text)["schema"] == 1
    assert ParityResult.model_validate_json(text).verdict == "equivalent"


@given(prefix=st.text(), one=st.text(), two=st.text())
def test_common_prefix_is_symmetric_and_no_shorter_than_what_is_common(prefix, one, two):
    length = common_prefix(prefix + one, prefix + two)
    assert length == common_prefix(prefix + two, prefix + one)
    assert len(prefix) <= length <= min(len(prefix + one), len(prefix + two))
    assert (prefix + one)[:length] == (prefix + two)[:length]
