"""A hub on the loopback interface: the URL layout of the Hugging Face hub, with a record of what it sent."""

from __future__ import annotations

import json
import re
import threading
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@dataclass
class Hub:
    """Repositories by `org/name`, and how the hub behaves.

    Attributes:
        honours_ranges: answer 206 with the range; else 200 with the whole file.
        redirects: send file requests on to `/storage/...`, as large files are.
        sent: (repository, file) -> highest byte position that was sent, exclusive.
    """

    repositories: dict[str, Path]
    revision: str = "main"
    honours_ranges: bool = True
    redirects: bool = False
    listing: bytes | None = None
    url: str = ""
    sent: defaultdict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))
    tokens: list[str | None] = field(default_factory=list)


@contextmanager
def serve(hub: Hub) -> Iterator[Hub]:
    """Serve a hub until the block ends."""
    handler = type("Handler", (_Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.hub.tokens.append(self.headers.get("Authorization"))
        if hit := re.fullmatch(r"/api/models/([^/]+/[^/]+)/revision/(.+)", path):
            self._listing(*hit.groups())
        elif hit := re.fullmatch(r"(/storage)?/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            self._file(*hit.groups())
        else:
            self._answer(404, b"no such page")

    def _listing(self, repository: str, revision: str) -> None:
        directory = self.hub.repositories.get(repository)
        if directory is None or revision != self.hub.revision:
            self._answer(404, b"no such repository")
            return
        files = [{"rfilename": path.name, "size": path.stat().st_size} for path in sorted(directory.iterdir())]
        self._answer(200, self.hub.listing or json.dumps({"siblings": files}).encode())

    def _file(self, storage: str | None, repository: str, revision: str, name: str) -> None:
        directory = self.hub.repositories.get(repository)
        if directory is None or revision != self.hub.revision or not (directory / name).is_file():
            self._answer(404, b"no such file")
        elif self.hub.redirects and storage is None:
            self.send_response(302)
            self.send_header("Location", "/storage" + self.path)
            self.send_header("Content-Length", "0")
            self.end_headers()
        else:
            self._send(repository, directory / name)

    def _send(self, repository: str, path: Path) -> None:
        size = path.stat().st_size
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        partial = wanted is not None and self.hub.honours_ranges
        start, end = (int(wanted[1]), min(int(wanted[2]) + 1, size)) if wanted and partial else (0, size)
        if start >= size:
            self._answer(416, b"")
            return
        self.send_response(206 if partial else 200)
        self.send_header("Content-Length", str(end - start))
        self.end_headers()
        key = (repository, path.name)
        with path.open("rb") as file:
            file.seek(start)
            while start < end:
                part = file.read(min(16384, end - start))
                try:
                    self.wfile.write(part)
                except OSError:
                    # The reader has what it wanted and hung up.
                    self.close_connection = True
                    return
                start += len(part)
                self.hub.sent[key] = max(self.hub.sent[key], start)

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
