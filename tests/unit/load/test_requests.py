"""Request bodies and the key."""

import json
from pathlib import Path

import pytest

from outrider.errors import LoadError
from outrider.load import LoadPlan
from outrider.load.api_key import read_api_key
from outrider.load.prompts import request_body
from outrider.load.workloads import Prompt

PROMPT = Prompt("p", "c", ({"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}))


def body(prompt: Prompt = PROMPT, **fields: object) -> dict:
    given = {"url": "http://h", "model": "m", "workload": "chat", "requests": 1, "max_tokens": 50}
    return json.loads(
        request_body(LoadPlan(**(given | {"arrivals": {"kind": "closed", "concurrency": 1}} | fields)), prompt)
    )


def test_chat_sends_the_whole_conversation_and_asks_for_counted_chunks() -> None:
    assert body() == {
        "model": "m",
        "messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}],
        "max_tokens": 50,
        "temperature": 0.0,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }


def test_completions_send_the_last_message_as_the_prompt() -> None:
    sent = body(endpoint="completions")
    assert sent["prompt"] == "Hi"
    assert "messages" not in sent


def test_extensions_are_only_sent_when_asked_for() -> None:
    sent = body(ignore_eos=True, seed=4, usage="final")
    assert (sent["ignore_eos"], sent["seed"]) == (True, 4)
    assert sent["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize(("own", "limit"), [(None, 50), (20, 20), (90, 50)])
def test_the_smaller_limit_wins(own: int | None, limit: int) -> None:
    assert body(Prompt("p", "c", PROMPT.messages, max_tokens=own))["max_tokens"] == limit


def test_a_key_is_one_token_and_never_shown(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("  sesame\n")
    assert read_api_key(file) == "sesame"
    assert read_api_key(None) is None
    for content in ("", "open sesame", "s\u00e9same"):
        file.write_text(content, encoding="utf-8")
        with pytest.raises(LoadError) as caught:
            read_api_key(file)
        assert "sesame" not in str(caught.value)
        assert str(file) in str(caught.value)
    with pytest.raises(LoadError, match="cannot be read"):
        read_api_key(tmp_path / "absent")
