"""The entry point of containers and units, and the look at an engine's health."""

from __future__ import annotations

import http.server
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from outrider.errors import RuntimeStateError
from outrider.runtime import healthcheck
from outrider.runtime.entrypoint import engine_environment, key_file
from outrider.runtime.secret import place_key, read_key


def test_the_key_comes_from_the_credential_before_the_containers_secret(tmp_path: Path) -> None:
    for name in ("credentials", "secrets"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "api_key").write_text(f"{name}-key\n")
    env = {"CREDENTIALS_DIRECTORY": str(tmp_path / "credentials")}
    assert engine_environment(env, tmp_path, tmp_path / "secrets")["VLLM_API_KEY"] == "credentials-key"
    assert engine_environment({}, tmp_path, tmp_path / "secrets")["VLLM_API_KEY"] == "secrets-key"
    assert key_file({}, tmp_path / "none") is None


def test_an_empty_secret_means_no_key(tmp_path: Path) -> None:
    (tmp_path / "api_key").write_text("\n")
    assert "VLLM_API_KEY" not in engine_environment({}, tmp_path, tmp_path)


def test_intels_openmp_is_preloaded_where_the_interpreter_has_it(tmp_path: Path) -> None:
    assert "LD_PRELOAD" not in engine_environment({}, tmp_path, tmp_path)
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libiomp5.so").touch()
    assert engine_environment({}, tmp_path, tmp_path)["LD_PRELOAD"] == str(tmp_path / "lib" / "libiomp5.so")
    assert engine_environment({"LD_PRELOAD": "mine"}, tmp_path, tmp_path)["LD_PRELOAD"] == "mine"


def test_it_becomes_the_engine_with_the_key_in_its_environment_and_not_in_its_command(tmp_path: Path) -> None:
    (tmp_path / "api_key").write_text("s3cret")
    script = "import os, sys; print(os.environ['VLLM_API_KEY'], sys.argv[1:])"
    done = subprocess.run(
        [sys.executable, "-m", "outrider.runtime.entrypoint", sys.executable, "-c", script, "--port", "8000"],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"CREDENTIALS_DIRECTORY": str(tmp_path)},
    )
    assert done.stdout.strip() == "s3cret ['--port', '8000']"
    absent = subprocess.run(
        [sys.executable, "-m", "outrider.runtime.entrypoint", "no-such-engine"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (absent.returncode, absent.stderr.strip()) == (1, "cannot start no-such-engine: No such file or directory")


@pytest.mark.parametrize(
    ("mode", "text", "cause"), [(0o644, "k", "every user"), (0o600, " \n", "empty"), (None, "", "cannot be read")]
)
def test_a_key_file_that_is_absent_empty_or_open_to_all_is_refused(
    tmp_path: Path, mode: int | None, text: str, cause: str
) -> None:
    path = tmp_path / "key"
    if mode is not None:
        path.write_text(text)
        path.chmod(mode)
    with pytest.raises(RuntimeStateError, match=cause):
        read_key(path)


def test_a_placed_key_is_for_its_user_alone(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("k\n")
    key.chmod(0o600)
    placed = place_key(read_key(key), tmp_path / "secrets" / "api_key", os.getuid(), os.getgid())
    assert placed.read_text() == "k\n"
    assert placed.stat().st_mode & 0o777 == 0o400
    place_key("other", placed, os.getuid(), os.getgid())
    assert placed.read_text() == "other\n"


def test_the_gate_waits_until_the_engine_answers_and_gives_up_at_its_deadline() -> None:
    asked = threading.Event()

    class Health(http.server.BaseHTTPRequestHandler):
        def log_message(self, *words: object) -> None:
            pass

        def do_GET(self) -> None:
            ready = asked.is_set()
            asked.set()
            self.send_response(200 if ready else 503)
            self.end_headers()

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Health) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/health"
        gate = [sys.executable, "-m", "outrider.runtime.healthcheck", url]
        assert subprocess.run(gate, capture_output=True, check=False).returncode == 1, "once, and it is not ready yet"
        asked.clear()
        assert subprocess.run([*gate, "--within", "30"], capture_output=True, check=False).returncode == 0
        server.shutdown()
    done = subprocess.run([*gate, "--within", "0.1"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "refused" in done.stderr
    assert healthcheck.fault(url)


def test_the_gate_does_not_wait_for_a_process_that_has_ended() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    gate = [sys.executable, "-m", "outrider.runtime.healthcheck", "http://127.0.0.1:9/health", "--within", "600"]
    done = subprocess.run([*gate, "--pid", str(ended.pid)], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert "has ended before it answered" in done.stderr
