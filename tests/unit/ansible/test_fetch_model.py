"""The model store's program against a hub on the loopback address that cuts connections, lies, and does not resume."""

from __future__ import annotations

import argparse
import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from outrider.model_store import manifest

REVISION = "4d01dfe0332d63057c186e0b262165819efb6611"
WEIGHTS = bytes(range(256)) * 4096
CONFIG = b'{"architectures": []}\n'


class Hub:
    """A model hub with one repository; what goes wrong is set by a test."""

    def __init__(self) -> None:
        self.files = {"model.safetensors": WEIGHTS, "sub/config.json": CONFIG}
        self.stated = dict(self.files)
        self.cut_at: dict[str, list[int]] = {}
        self.resumes = True
        self.token: str | None = None
        self.sha = REVISION
        self.ranges: list[tuple[str, str | None]] = []
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *words: object) -> None:
                """Say nothing."""

            def do_GET(self) -> None:
                hub.answer(self)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self.thread.start()
        self.uri = f"http://127.0.0.1:{self.server.server_port}"

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        if self.token and request.headers.get("Authorization") != f"Bearer {self.token}":
            return self.send(request, 401, b"")
        path = request.path.split("?")[0]
        if path == f"/api/models/org/model/revision/{REVISION}":
            return self.send(request, 200, json.dumps({"sha": self.sha, "siblings": self.siblings()}).encode())
        name = path.removeprefix(f"/org/model/resolve/{REVISION}/").removeprefix("/plain/")
        if name == manifest.NAME:
            listed = {n: {"size": len(c), "sha256": hashlib.sha256(c).hexdigest()} for n, c in self.stated.items()}
            return self.send(request, 200, json.dumps({"from": {}, "files": listed}).encode())
        if name not in self.files:
            return self.send(request, 404, b"")
        wanted = request.headers.get("Range")
        self.ranges.append((name, wanted))
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and self.resumes else 0
        content = self.files[name][start:]
        request.send_response(206 if start else 200)
        request.send_header("Content-Length", str(len(content)))
        request.end_headers()
        cuts = self.cut_at.get(name) or [len(content)]
        request.wfile.write(content[: cuts.pop(0)] if self.cut_at.get(name) else content)
        request.close_connection = True
        return None

    def siblings(self) -> list[dict[str, Any]]:
        large = self.stated["model.safetensors"]
        small = self.stated["sub/config.json"]
        git = hashlib.sha1(b"blob %d\0" % len(small) + small).hexdigest()
        lfs = {"size": len(large), "sha256": hashlib.sha256(large).hexdigest()}
        return [
            {"rfilename": "model.safetensors", "size": len(large), "blobId": "0" * 40, "lfs": lfs},
            {"rfilename": "sub/config.json", "size": len(small), "blobId": git},
        ]

    def send(self, request: BaseHTTPRequestHandler, code: int, body: bytes) -> None:
        request.send_response(code)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def hub() -> Iterator[Hub]:
    served = Hub()
    yield served
    served.close()


@pytest.fixture(autouse=True)
def no_pauses(fetch_model: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_model.time, "sleep", lambda seconds: None)


def order(to: Path, **changed: Any) -> argparse.Namespace:
    words: dict[str, Any] = {
        "name": "org/model", "to": to, "source": "hub", "origin": None, "revision": REVISION, "hub": "", "include": [],
        "token_file": None, "reserve_gb": 0, "check": False,
    }  # fmt: skip
    return argparse.Namespace(**{**words, **changed})


def test_a_checkpoint_by_revision_is_complete_and_verified(fetch_model: ModuleType, hub: Hub, tmp_path: Path) -> None:
    done = fetch_model.fetch(order(tmp_path / "m", hub=hub.uri))
    assert done == {"changed": True, "files": 2, "bytes": len(WEIGHTS) + len(CONFIG)}
    assert (tmp_path / "m/model.safetensors").read_bytes() == WEIGHTS
    assert manifest.check(tmp_path / "m") == []


def test_a_second_time_nothing_is_fetched(fetch_model: ModuleType, hub: Hub, tmp_path: Path) -> None:
    fetch_model.fetch(order(tmp_path / "m", hub=hub.uri))
    hub.ranges.clear()
    assert fetch_model.fetch(order(tmp_path / "m", hub=hub.uri))["changed"] is False
    assert hub.ranges == []


def test_a_cut_connection_goes_on_where_it_stopped(fetch_model: ModuleType, hub: Hub, tmp_path: Path) -> None:
    hub.cut_at["model.safetensors"] = [1000, 50_000]
    fetch_model.fetch(order(tmp_path / "m", hub=hub.uri))
    wanted = [asked for name, asked in hub.ranges if name == "model.safetensors"]
    assert wanted == [None, "bytes=1000-", "bytes=51000-"]
    assert (tmp_path / "m/model.safetensors").read_bytes() == WEIGHTS


def test_another_run_goes_on_with_what_lies_there(fetch_model: ModuleType, hub: Hub, tmp_path: Path) -> None:
    hub.cut_at["model.safetensors"] = [100_000, 0, 0, 0, 0]
    with pytest.raises(fetch_model.Fault, match="goes on where it stopped"):
        fetch_model.fetch(order(tmp_path / "m", hub=hub.uri))
    assert (tmp_path / "m/model.safetensors.partial").stat().st_size == 100_000
    hub.cut_at.clear()
    hub.ranges.clear()
    fetch_model.fetch(order(tmp_path / "m", hub=hub.uri))
    assert hub.ranges[0] == ("model.safetensors", "bytes=100000-")
    assert manifest.check(tmp_path / "m") == []


def test_a_server_that_does_not_resume_is_read_from_the_start(
    fetch_model: ModuleType, hub: Hub, tmp_path: Path
) -> None:
    hub.resumes = False
    hub.cut_at["model.safetensors"] = [1000]
    fetch_model.fetch(order(tmp_path / "m", hub=hub.uri))
    assert (tmp_path / "m/model.safetensors").read_bytes() == WEIGHTS


@pytest.mark.parametrize("name", ["model.safetensors", "sub/config.json"])
def test_other_bytes_than_stated_are_removed(fetch_model: ModuleType, hub: Hub, tmp_path: Path, name: str) -> None:
    hub.files[name] = bytes(len(hub.files[name]))
    with pytest.raises(fetch_model.Fault, match="What was fetched is removed"):
        fetch_model.fetch(order(tmp_path / "m", hub=hub.uri))
    assert not (tmp_path / "m" / name).exists()
    assert not (tmp_path / "m" / manifest.NAME).exists()


def test_a_damaged_file_of_an_unfinished_run_is_fetched_again(
    fetch_model: ModuleType, hub: Hub, tmp_path: Path
) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m/model.safetensors").write_bytes(bytes(len(WEIGHTS)))
    fetch_model.fetch(order(tmp_path / "m", hub=hub.uri))
    assert (tmp_path / "m/model.safetensors").read_bytes() == WEIGHTS


def test_a_plain_web_directory_by_its_manifest(fetch_model: ModuleType, hub: Hub, tmp_path: Path) -> None:
    fetch_model.fetch(order(tmp_path / "m", source="url", origin=f"{hub.uri}/plain/", revision=None))
    assert manifest.check(tmp_path / "m") == []


def test_a_directory_on_the_node(fetch_model: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "usb/sub").mkdir(parents=True)
    (tmp_path / "usb/sub/config.json").write_bytes(CONFIG)
    wanted = order(tmp_path / "m", source="directory", origin=str(tmp_path / "usb"), revision=None)
    assert fetch_model.fetch(wanted)["changed"] is True
    assert fetch_model.fetch(wanted)["changed"] is False
    assert (tmp_path / "m/sub/config.json").read_bytes() == CONFIG


def test_a_directory_whose_manifest_it_does_not_match_is_refused(fetch_model: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "usb").mkdir()
    (tmp_path / "usb/model.safetensors").write_bytes(WEIGHTS)
    manifest.write(tmp_path / "usb", {})
    (tmp_path / "usb/model.safetensors").write_bytes(bytes(len(WEIGHTS)))
    with pytest.raises(fetch_model.Fault, match="the source states"):
        fetch_model.fetch(order(tmp_path / "m", source="directory", origin=str(tmp_path / "usb"), revision=None))


def test_only_what_is_asked_for(fetch_model: ModuleType, hub: Hub, tmp_path: Path) -> None:
    fetch_model.fetch(order(tmp_path / "m", hub=hub.uri, include=["*.json"]))
    assert not (tmp_path / "m/model.safetensors").exists()
    with pytest.raises(fetch_model.Fault, match="no files that are asked for"):
        fetch_model.fetch(order(tmp_path / "n", hub=hub.uri, include=["*.gguf"]))


def test_too_little_room_is_said_before_anything_is_fetched(fetch_model: ModuleType, hub: Hub, tmp_path: Path) -> None:
    with pytest.raises(fetch_model.Fault, match="GB needed"):
        fetch_model.fetch(order(tmp_path / "m", hub=hub.uri, reserve_gb=1e9))
    assert hub.ranges == []


def test_check_mode_fetches_nothing(fetch_model: ModuleType, hub: Hub, tmp_path: Path) -> None:
    assert fetch_model.fetch(order(tmp_path / "m", hub=hub.uri, check=True))["changed"] is True
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("revision", ["main", "", None])
def test_a_branch_is_no_revision(fetch_model: ModuleType, hub: Hub, tmp_path: Path, revision: str | None) -> None:
    with pytest.raises(fetch_model.Fault, match="no full commit"):
        fetch_model.fetch(order(tmp_path / "m", hub=hub.uri, revision=revision))


def test_a_hub_that_answers_with_another_revision_is_refused(fetch_model: ModuleType, hub: Hub, tmp_path: Path) -> None:
    hub.sha = "f" * 40
    with pytest.raises(fetch_model.Fault, match="asked for"):
        fetch_model.fetch(order(tmp_path / "m", hub=hub.uri))


def test_a_gated_repository_asks_for_a_token(fetch_model: ModuleType, hub: Hub, tmp_path: Path) -> None:
    hub.token = "hf_secret"
    with pytest.raises(fetch_model.Fault, match="model_store_hub_token_file"):
        fetch_model.fetch(order(tmp_path / "m", hub=hub.uri))
    assert fetch_model.fetch(order(tmp_path / "m", hub=hub.uri), token="hf_secret")["changed"] is True


@pytest.mark.parametrize("name", ["../../etc/cron.d/x", "/etc/passwd", ""])
def test_names_that_lead_out_are_refused(fetch_model: ModuleType, name: str) -> None:
    with pytest.raises(fetch_model.Fault, match="leads out"):
        fetch_model.safe({name: {"size": 1}})
