"""Reading back what a running engine chose."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.preflight import checkpoints as made
from tests.unit.preflight.checkpoints import codes, drafted

from outrider.engine import EngineScrape, SpecCounters, StartupFacts
from outrider.preflight import Running, read_running, run_preflight

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from outrider.preflight import PreflightReport

MODELS = [{"id": "tiny-target", "max_model_len": 2048}]
SPECULATING = EngineScrape(spec=SpecCounters(0, 0, 0, (0, 0, 0)))
PLAIN = EngineScrape()


def facts(**changes: Any) -> StartupFacts:
    said: dict[str, Any] = {
        "version": "0.33.0",
        "attention_backend": "FLASH_ATTN",
        "graph_mode": "FULL_AND_PIECEWISE",
        "model_runner": "v2",
        "spec_method": "eagle3",
    }
    return StartupFacts(**said | changes)


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    root = tmp_path_factory.mktemp("checkpoints")
    return made.llama_target().write(root / "target"), made.llama_eagle3().write(root / "drafter")


def check(directories: tuple[Path, Path], running: Running, variant: str = "drafted", **stack: Any) -> PreflightReport:
    return run_preflight(
        made.stack(drafted("eagle3"), **stack),
        variant,
        model_dir=directories[0],
        drafter_dir=directories[1],
        running=running,
    )


def expected_tokens(directories: tuple[Path, Path]) -> int:
    return check(directories, Running("u")).memory[0].kv_tokens


def test_engine_as_expected_gives_no_finding(directories: tuple[Path, Path]) -> None:
    tokens = expected_tokens(directories)
    running = Running("u", MODELS, SPECULATING, facts(kv_tokens=int(tokens * 1.1)))
    assert codes(check(directories, running).findings) == set()


@pytest.mark.parametrize(
    ("models", "scrape", "said", "code"),
    [
        ([{"id": "other"}], SPECULATING, {}, "RUN002"),
        ([], SPECULATING, {}, "RUN002"),
        ([{"id": "tiny-target", "max_model_len": 1024}], SPECULATING, {}, "RUN003"),
        (MODELS, PLAIN, {}, "RUN004"),
        (MODELS, EngineScrape(spec=SpecCounters(0, 0, 0, (0,))), {}, "RUN004"),
        (MODELS, SPECULATING, {"spec_method": "ngram"}, "RUN004"),
        (MODELS, SPECULATING, {"graph_mode": "eager"}, "RUN006"),
        (MODELS, SPECULATING, {"kv_tokens": 5}, "RUN007"),
        (MODELS, SPECULATING, {"model_runner": "v1"}, "RUN010"),
        (MODELS, EngineScrape(spec=SpecCounters(1000, 3000, 36, (30, 6, 0))), {}, "RUN011"),
        (MODELS, SPECULATING, {"version": "0.32.0"}, "RUN012"),
    ],
)
def test_one_difference_gives_its_finding(
    directories: tuple[Path, Path], models: list[dict[str, Any]], scrape: EngineScrape, said: dict[str, Any], code: str
) -> None:
    report = check(directories, Running("u", models, scrape, facts(**said)))
    assert codes(report.findings) == {code}


def test_speculation_where_none_is_declared(directories: tuple[Path, Path]) -> None:
    running = Running("u", MODELS, SPECULATING, facts(spec_method=None))
    assert codes(check(directories, running, "baseline").findings) == {"RUN004"}


def test_low_acceptance_of_few_drafts_says_nothing(directories: tuple[Path, Path]) -> None:
    scrape = EngineScrape(spec=SpecCounters(10, 30, 0, (0, 0, 0)))
    assert codes(check(directories, Running("u", MODELS, scrape, facts())).findings) == set()


def test_backend_that_the_stack_asks_for(directories: tuple[Path, Path]) -> None:
    running = Running("u", MODELS, SPECULATING, facts())
    flags = {"attention-backend": "TRITON_ATTN"}
    assert codes(check(directories, running, flags=flags).findings) == {"RUN005"}


def test_layers_that_the_engine_reads_are_compared_with_the_config(directories: tuple[Path, Path]) -> None:
    said = facts(aux_layers=(2, 3, 4))
    assert codes(check(directories, Running("u", MODELS, SPECULATING, said)).findings) == {"RUN008"}


def test_what_the_log_does_not_say_is_a_note(directories: tuple[Path, Path]) -> None:
    report = check(directories, Running("u", MODELS, SPECULATING, StartupFacts()))
    assert codes(report.findings) == set()
    note = next(one for one in report.findings if one.code == "RUN009")
    assert "attention backend, graph mode, KV tokens, drafter's layers" in note.evidence


@contextmanager
def engine(pages: dict[str, tuple[int, str]]) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            status, text = pages.get(self.path, (404, "none"))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(text.encode())

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


METRICS = """\
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0"} 0.0
# TYPE vllm:spec_decode_num_drafts counter
vllm:spec_decode_num_drafts_total{engine="0"} 12.0
# TYPE vllm:spec_decode_num_draft_tokens counter
vllm:spec_decode_num_draft_tokens_total{engine="0"} 36.0
# TYPE vllm:spec_decode_num_accepted_tokens counter
vllm:spec_decode_num_accepted_tokens_total{engine="0"} 20.0
"""
LOG = """\
INFO Initializing a V1 LLM engine (v0.32.0) with config: ...
INFO CPU KV cache size: 46,592 tokens, Maximum concurrency for 2,048 tokens per request: 22.75x
"""


def test_reads_models_metrics_and_log(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    log.write_text(LOG)
    pages = {"/v1/models": (200, json.dumps({"data": MODELS})), "/metrics": (200, METRICS)}
    with engine(pages) as url:
        running = read_running("vllm", f"{url}/v1/", log=log)
    assert running.faults == ()
    assert running.models == MODELS
    assert running.scrape is not None
    assert running.scrape.spec is not None
    assert running.scrape.spec.drafts == 12
    assert running.facts is not None
    assert running.facts.kv_tokens == 46_592


@pytest.mark.parametrize(
    ("models", "metrics", "faults"),
    [
        ((404, ""), (200, METRICS), 1),
        ((200, "not json"), (200, METRICS), 1),
        ((200, "{}"), (200, METRICS), 1),
        ((200, json.dumps({"data": MODELS})), (500, ""), 1),
        ((200, json.dumps({"data": MODELS})), (200, "up 1\n"), 1),
        ((503, ""), (503, ""), 2),
    ],
)
def test_page_that_is_not_the_engines_is_a_fault(
    directories: tuple[Path, Path], models: tuple[int, str], metrics: tuple[int, str], faults: int
) -> None:
    with engine({"/v1/models": models, "/metrics": metrics}) as url:
        running = read_running("vllm", url)
    assert len(running.faults) == faults
    assert "RUN001" in codes(check(directories, running).findings)


def test_absent_log_is_a_fault(tmp_path: Path) -> None:
    with engine({}) as url:
        running = read_running("vllm", url, log=tmp_path / "none.log")
    assert [where for where, _ in running.faults][-1].endswith("none.log")


def test_nobody_answers() -> None:
    with engine({}) as url:
        pass
    assert len(read_running("vllm", url, timeout_s=2.0).faults) == 2
