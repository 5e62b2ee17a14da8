"""Programs of the training interpreter on their own: no engine, only what they need to be told wrong."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest
from tests.integration.train.conftest import STACK
from tests.integration.train.tiny_target import make_tokenizer

from outrider.stack import stack_from_text
from outrider.train.processes import run_all
from outrider.train.recipe import recipe_of
from outrider.train.session import Session
from outrider.train.worker import EXIT_OTHER_TOKENIZER

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.train


@contextmanager
def _tokenize_server(tokens: list[int]) -> Iterator[str]:
    """A server that tokenises everything into the same tokens."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.dumps({"tokens": tokens, "count": len(tokens)}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def session(tmp_path: Path, train_python: str, monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.setenv("OUTRIDER_TRAIN_PYTHON", train_python)
    stack = stack_from_text(STACK)
    (tmp_path / "model").mkdir()
    return Session(stack=stack, recipe=recipe_of(stack), directory=tmp_path, model_dir=tmp_path / "model", port=1)


def _probe(session: Session, url: str) -> int | None:
    job = session.job(session.directory / "log", "probe-tokenizer", "--endpoint", url, "--model", session.target_name)
    return run_all([job], session.job_env())[0]


def test_the_probe_passes_the_targets_own_tokenizer_and_stops_another_one(session: Session) -> None:
    tokenizer = make_tokenizer(session.model_dir)
    text = "Tokenizer probe: naïve café, 12.5 % of £3, 日本, def f(x): return x**2"
    own = tokenizer.apply_chat_template(
        [{"role": "user", "content": text}], add_generation_prompt=True, return_dict=True
    )["input_ids"]
    with _tokenize_server(list(own)) as url:
        assert _probe(session, url) == 0
    with _tokenize_server([*own[:-1], own[-1] + 1]) as url:
        assert _probe(session, url) == EXIT_OTHER_TOKENIZER
    assert "served tokens" in (session.directory / "log").read_text(encoding="utf-8")
