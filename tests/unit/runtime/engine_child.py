"""A small program that behaves as engines do, well or badly: started by the tests as a real process.

It obeys the steps of its command line in order, for example `print=hello worker serve=8000 wait`.
"""

from __future__ import annotations

import ctypes
import http.server
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path


def say(text: str) -> None:
    os.write(1, f"{text}\n".encode())


def fork(then: str) -> None:
    """Start a descendant that says its PID and waits: `plain`, `session` (setsid) or `daemon` (setsid, orphan)."""
    if os.fork():
        return
    if then in {"session", "daemon"}:
        os.setsid()
    if then == "daemon" and os.fork():
        os._exit(0)
    say(f"{then} pid={os.getpid()}")
    wait_for_ever()


def overwrite_environment() -> None:
    """Do what setproctitle does: leave nothing of the environment that /proc shows."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    begin, end = int(fields[47]), int(fields[48])
    ctypes.memset(begin, 0, end - begin)


def wait_for_ever() -> None:
    while True:
        signal.pause()


class Handler(http.server.BaseHTTPRequestHandler):
    gate: Path | None = None

    def do_GET(self) -> None:
        ready = self.gate is None or self.gate.exists()
        self.send_response(200 if ready else 503)
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *args: object) -> None:
        say(f'127.0.0.1:{self.client_address[1]} - "{self.requestline}" 200 OK')


class SharingServer(http.server.ThreadingHTTPServer):
    """Shares its port, as vLLM does."""

    def server_bind(self) -> None:
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        super().server_bind()


def serve(port: int) -> None:
    server = SharingServer(("127.0.0.1", port), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()


def chatter(kind: str) -> None:
    """Print for ever: lines that differ (`new`), or one line with the clock in front (`same`)."""
    count = 0
    while True:
        count += 1
        clock = time.strftime("%m-%d %H:%M:%S")
        say(f"INFO {clock} No available shared memory broadcast block" if kind == "same" else f"shard {count}")
        time.sleep(0.02)  # what the program under test waits for is elsewhere


def set_gate(path: str) -> None:
    """Answer 503 until this file exists."""
    Handler.gate = Path(path)


def flood(count: str) -> None:
    for i in range(int(count)):
        say(f"line {i} " + "x" * 90)


STEPS = {
    "print": say,
    "flood": flood,
    "environ": lambda name: say(f"{name}={os.environ.get(name)}"),
    "ignore": lambda name: signal.signal(signal.Signals[name], signal.SIG_IGN),
    "fork": fork,
    "blank-environment": lambda _: overwrite_environment(),
    "gate": set_gate,
    "serve": lambda port: serve(int(port)),
    "chatter": chatter,
    "exit": lambda code: os._exit(int(code)),
    "kill": lambda name: os.kill(os.getpid(), signal.Signals[name]),
    "wait": lambda _: wait_for_ever(),
}


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        step, _, value = argument.partition("=")
        STEPS[step](value)
