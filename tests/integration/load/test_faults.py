"""Every fault becomes an outcome of its own, is named in the summary, and hangs nothing."""

import io
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from outrider.load import LoadOutcome, LoadResult
from outrider.load.outcome import Outcome
from outrider.load.summary import print_summary

pytestmark = pytest.mark.quiet

Load = Callable[..., LoadOutcome]


def summary(result: LoadResult) -> str:
    text = io.StringIO()
    print_summary(result, Console(file=text, width=300))
    return text.getvalue()


def codes(result: LoadResult) -> set[str]:
    return {finding.code for finding in result.validity}


@pytest.mark.parametrize(
    ("script", "outcome"),
    [
        ("status=400", Outcome.BAD_REQUEST),
        ("status=401", Outcome.UNAUTHORIZED),
        ("status=403", Outcome.UNAUTHORIZED),
        ("status=404", Outcome.NOT_FOUND),
        ("status=418", Outcome.HTTP_OTHER),
        ("status=429", Outcome.RATE_LIMITED),
        ("status=500", Outcome.SERVER_ERROR),
        ("status=503", Outcome.UNAVAILABLE),
        ("fault=reset,gap=0.002", Outcome.RESET),
        ("fault=close,gap=0.002", Outcome.CUT_OFF),
        ("fault=stall,gap=0.002", Outcome.STALLED),
        ("fault=hang", Outcome.STALLED),
        ("fault=json,gap=0.002", Outcome.MALFORMED_JSON),
        ("fault=utf8,gap=0.002", Outcome.NOT_UTF8),
        ("fault=huge,gap=0.002", Outcome.EVENT_TOO_LARGE),
        ("fault=error,gap=0.002", Outcome.ERROR_EVENT),
        ("fault=nodone,gap=0.002", Outcome.MISSING_DONE),
        ("fault=notstream", Outcome.NOT_A_STREAM),
        ("finish=none,gap=0.002", Outcome.NO_FINISH),
        ("finish=abort,gap=0.002", Outcome.ABORTED),
        ("field=empty,gap=0.002", Outcome.TOKENS_WITHOUT_TEXT),
    ],
)
def test_a_fault_of_the_server_is_counted_under_its_own_name(load: Load, script: str, outcome: Outcome) -> None:
    got = load(script, idle_timeout_s=0.4 if outcome is Outcome.STALLED else 20.0)
    result = got.result
    assert result.outcomes == {outcome.value: 4}
    assert result.status == "invalid"
    assert f"outcome_{outcome.value}" in codes(result)
    assert outcome.meaning in summary(result)
    assert [row.outcome for row in got.records if row.phase == "measured"] == [outcome.value] * 4


def test_the_server_s_own_words_are_kept(load: Load) -> None:
    result = load("status=503").result
    assert "replayed 503" in result.errors["unavailable"][0]
    assert "replayed 503" in summary(result)


def test_a_stream_that_pauses_longer_in_total_than_the_limit_but_never_stalls_is_fine(load: Load) -> None:
    result = load("chunks=10,gap=0.1", idle_timeout_s=0.4, requests=2).result
    assert result.outcomes == {"length": 2}
    assert result.e2e_s.p50 > 0.9


def test_an_absent_endpoint_is_named_and_ends_the_test_early(load: Load) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        result = load(url=f"http://127.0.0.1:{port}", requests=100_000).result
    # The other user may be between its connection and the answer to it when the test ends.
    assert result.outcomes.pop("cancelled", 0) <= 1
    assert set(result.outcomes) == {"refused"}
    assert result.outcomes["refused"] < 100
    assert {"gave_up", "outcome_refused"} <= codes(result)
    assert "nothing listens" in summary(result)


def test_a_warm_up_that_always_fails_is_reported_as_what_it_was(load: Load) -> None:
    result = load("status=401", warmup_requests=1000, requests=1).result
    assert result.requests == 0
    assert set(result.outcomes) == {"unauthorized"}
    assert result.status == "invalid"


def test_an_unknown_host_is_named(load: Load) -> None:
    result = load(url="http://no-such-host.invalid:1", requests=2).result
    assert result.outcomes == {"unresolved": 2}


def test_https_to_a_plain_server_is_a_tls_failure(load: Load, replay) -> None:
    result = load(
        url=replay.url.replace("http:", "https:"), requests=2, idle_timeout_s=2.0, connect_timeout_s=2.0
    ).result
    assert result.outcomes == {"tls": 2}


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-days", "2", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", str(key), "-out", str(cert)),
        ],
        check=True,
        capture_output=True,
    )
    ssl.create_default_context(cafile=str(cert))
    return cert, key


def test_a_certificate_that_nobody_trusts_is_a_tls_failure(load: Load, start_replay, certificate) -> None:
    server = start_replay("--tls", *map(str, certificate), scheme="https")
    result = load(url=server.url, requests=2).result
    assert result.outcomes == {"tls": 2}
    assert "certificate" in result.errors["tls"][0]


def test_a_trusted_certificate_streams(load: Load, start_replay, certificate, monkeypatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    server = start_replay("--tls", *map(str, certificate), scheme="https")
    result = load(url=server.url).result
    assert result.outcomes == {"length": 4}
    assert result.tokens == 4 * 6


def test_something_that_is_not_http_is_named(load: Load) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            for _ in range(2):
                peer, _ = server.accept()
                peer.recv(4096)
                peer.sendall(b"220 mail.example ESMTP\r\n")
                peer.close()

        thread = threading.Thread(target=answer)
        thread.start()
        result = load(url=f"http://127.0.0.1:{server.getsockname()[1]}", requests=2).result
        thread.join()
    assert result.outcomes == {"protocol": 2}


def test_a_few_failures_among_many_flag_and_do_not_enter_the_latencies(load: Load, tmp_path: Path) -> None:
    """One in forty requests fails; the model name is the same for all, so the prompt carries the fault."""
    prompts = tmp_path / "mixed.jsonl"
    prompts.write_text("".join(f'{{"prompt": "{"FAIL" if n == 17 else "fine"} {n}"}}\n' for n in range(80)))
    result = load("chunks=3,gap=0.002,failing=FAIL", prompts_file=prompts, requests=80).result
    assert result.outcomes == {"error_event": 1, "length": 79}
    assert result.ttft_s.count == 79
    assert result.status == "flagged"


def test_an_idle_connection_that_the_server_closed_is_replaced_once_and_counted(load: Load) -> None:
    result = load("chunks=3,gap=0.002,hangup=1", requests=6).result
    assert result.outcomes == {"length": 6}
    assert result.client.reconnects > 0
