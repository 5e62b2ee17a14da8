"""Which HTTP client? The same streams through four of them, under gevent, with the same stream reader.

    python benchmarks/client/transports.py [--streams 128] [--gap 0.05] [--chunks 100]

Prints, for each, chunks per CPU-second and how late it hands over a chunk (server's send to the reader's call).
Each runs in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from replay import Replay

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TRANSPORTS = ("outrider", "geventhttpclient", "requests content", "requests lines")


def main() -> None:
    """Run each transport, print what it costs."""
    parser = argparse.ArgumentParser(description="CPU cost and delay of HTTP clients under gevent")
    parser.add_argument("--streams", type=int, default=128)
    parser.add_argument("--gap", type=float, default=0.05)
    parser.add_argument("--chunks", type=int, default=100)
    parser.add_argument("--child", nargs=2, metavar=("TRANSPORT", "URL"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(*options.child, options.streams, f"chunks={options.chunks},gap={options.gap}")
        return
    for transport in TRANSPORTS:
        with tempfile.TemporaryDirectory() as scratch, Replay(Path(scratch) / "truth") as replay:
            shape = ["--streams", str(options.streams), "--gap", str(options.gap), "--chunks", str(options.chunks)]
            command = [sys.executable, __file__, *shape, "--child", transport, replay.url]
            out = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
            truth = replay.truth()
        late = sorted(
            got - sent
            for name, times in out["times"].items()
            for got, sent in zip(times, truth[name]["sends"], strict=True)
        )
        middle, tail = (late[int(q * len(late))] * 1e3 for q in (0.5, 0.99))
        print(
            f"{transport}: {options.streams * options.chunks / out['cpu_s']:,.0f} chunks per CPU-second, "
            f"handed over {middle:.2f} ms late at p50, {tail:.2f} ms at p99"
        )


def child(transport: str, url: str, streams: int, script: str) -> None:
    """All streams through one transport; CPU time and arrival times as JSON."""
    import gevent  # noqa: PLC0415
    import locust  # noqa: F401, PLC0415 - patches the standard library, as in every Locust process

    from outrider.load.stream import StreamReader  # noqa: PLC0415

    open_stream = opener(transport, url)
    times: dict[str, list[float]] = {}

    def stream(name: str) -> None:
        body = json.dumps({"model": script, "stream": True, "messages": [{"role": "user", "content": name}]}).encode()
        reader, arrivals = StreamReader(), times.setdefault(name, [])
        for data, at in open_stream(body):
            arrivals += [at] * reader.feed(data, at)

    jobs = [gevent.spawn(stream, f"s{n}") for n in range(streams)]
    gevent.sleep(0.05)  # connections stand, first tokens are under way
    before = time.process_time()
    gevent.joinall(jobs, raise_error=True)
    json.dump({"cpu_s": time.process_time() - before, "times": times}, sys.stdout)


def opener(transport: str, url: str) -> Callable[[bytes], Iterator[tuple[bytes, float]]]:
    """A function that posts a body and yields pieces of the answer with their times."""
    path = "/v1/chat/completions"
    if transport == "outrider":
        return lambda body: own(url, path, body)
    if transport == "geventhttpclient":
        from geventhttpclient import HTTPClient  # noqa: PLC0415

        def pieces(body: bytes) -> Iterator[tuple[bytes, float]]:
            answer = HTTPClient.from_url(url, network_timeout=60).post(path, body)
            while data := answer.readline(b"\n\n"):
                yield bytes(data), time.perf_counter()

        return pieces
    import requests  # noqa: PLC0415

    def answer_pieces(body: bytes) -> Iterator[tuple[bytes, float]]:
        with requests.Session().post(url + path, data=body, stream=True, timeout=60) as answer:
            lines = transport == "requests lines"
            for data in answer.iter_lines() if lines else answer.iter_content(chunk_size=None):
                yield (data + b"\n" if lines else data), time.perf_counter()

    return answer_pieces


def own(url: str, path: str, body: bytes) -> Iterator[tuple[bytes, float]]:
    """Outrider's connection and decoder."""
    from outrider.load.connection import Address, Connection  # noqa: PLC0415
    from outrider.load.http1 import ResponseDecoder  # noqa: PLC0415

    connection, decoder = Connection(Address.of(url), 10.0), ResponseDecoder()
    connection.send(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body, 60.0)
    connection.listen(60.0)
    while not decoder.complete:
        data, at = connection.receive()
        for piece in decoder.feed(data):
            yield piece, at
    connection.close()


if __name__ == "__main__":
    main()
