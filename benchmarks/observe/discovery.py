"""How soon does Prometheus scrape a variant that was served, and let go of one that was stopped?

    python benchmarks/observe/discovery.py [--times 5]

A real Prometheus with the committed configuration (a scrape every 10 s); a file comes, and goes.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx

from outrider.runtime.discovery import Target, drop, publish
from outrider.runtime.ports import free_port

ROOT = Path(__file__).resolve().parents[2]


class Page(BaseHTTPRequestHandler):
    """A target that notes when it is scraped."""

    scraped = threading.Event()

    def do_GET(self) -> None:
        """Answer."""
        self.scraped.set()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"a 1\n")

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=5)
    asked = parser.parse_args()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as name:
        room, port = Path(name), free_port(9500)
        targets = room / "targets"
        targets.mkdir()
        text = (ROOT / "prometheus" / "prometheus.yml").read_text().replace("/etc/prometheus/targets", str(targets))
        (room / "prometheus.yml").write_text(text.replace("rules/*.yml", str(ROOT / "prometheus/rules/*.yml")))
        process = subprocess.Popen(
            ["prometheus", f"--config.file={room / 'prometheus.yml'}", f"--storage.tsdb.path={room / 'data'}",
             f"--web.listen-address=127.0.0.1:{port}"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            time.sleep(8)
            found = [once(server.server_port, port, targets) for _ in range(asked.times)]
        finally:
            process.terminate()
            process.wait()
    for what, values in zip(("known after", "scraped after", "let go after"), zip(*found, strict=True), strict=True):
        print(f"{what} {statistics.median(values):.1f} s (median), {max(values):.1f} s (largest)")
    return 0


def once(target_port: int, port: int, targets: Path) -> tuple[float, float, float]:
    """Seconds until a file that came is a target, until its first scrape, and until it is none after it has gone."""
    target = Target("engine-x", f"127.0.0.1:{target_port}", {"stack": "s", "variant": "v"})
    Page.scraped.clear()
    began = time.monotonic()
    publish(target, targets)
    await_listing(target, port, there=True)
    listed = time.monotonic() - began
    Page.scraped.wait(60)
    came = time.monotonic() - began
    began = time.monotonic()
    drop(target, targets)
    await_listing(target, port, there=False)
    return listed, came, time.monotonic() - began


def await_listing(target: Target, port: int, *, there: bool) -> None:
    """Wait until Prometheus has a target, or has it no more."""
    while there != (target.address in httpx.get(f"http://127.0.0.1:{port}/api/v1/targets", timeout=10).text):
        time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(main())
