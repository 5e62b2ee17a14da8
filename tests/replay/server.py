"""A streaming endpoint with known send times: the ground truth that the load client is held to.

    python tests/replay/server.py [--port 0] [--tls CERT KEY] [--truth FILE]

One asyncio process, HTTP/1.1 by hand, as lean as it can be because it shares the machine with the client.
It prints its port as the first line of standard output. A request says how it wants to be answered in its
`model`, as a list of `name=value` with commas or semicolons between (all optional):

    chunks=N        content chunks (default 20)             tokens=A:B:...  tokens a chunk, cycled (default 1)
    gap=S           seconds between chunks (default 0.05)   jitter=S        uniform +-S on each gap
    ttft=S          seconds to the first chunk (default: one gap)
    usage=continuous|final|none                             finish=stop|length|tool_calls|abort|none
    field=content|reasoning|reasoning_content|tool|empty    eos=1           a last token without text
    status=CODE     answer with this status                 split=N         cut writes into N bytes
    early=1         send the role-only event at once, not with the first token
    at=K            chunk at which a fault strikes          failing=TEXT    prompts with TEXT fail (error)
    sparing=N       ... after the first N requests
    key=TOKEN       401 unless the request bears it
    hangup=1        close the connection after the answer, without having said so
    fault=reset|close|stall|json|utf8|huge|error|nodone|notstream|hang

Truth is the time just before the bytes are handed to the kernel, on CLOCK_MONOTONIC, which all processes of
the machine share. With `--truth` a JSON line a request is written when the stream has ended: `id` (the
prompt's text), `received`, `unix` (add it to get Unix seconds), `sends` (one time a content chunk) and
`tokens` (cumulative, same length).
`GET /metrics` answers what `POST /metrics` stored, if anything; `GET /v1/models` answers one model,
`GET /chunks` the number of content chunks sent so far.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import socket
import ssl
import struct
from dataclasses import dataclass, field, fields
from pathlib import Path
from time import perf_counter, time

WORDS = (
    "alpha ",
    "river ",
    "stone ",
    "light ",
    "north ",
    "paper ",
    "seven ",
    "glass ",
    "cloud ",
    "green ",
    "amber ",
)


@dataclass
class Script:
    """How one request is answered; see the module's docstring."""

    chunks: int = 20
    tokens: str = "1"
    gap: float = 0.05
    jitter: float = 0.0
    ttft: float = -1.0
    usage: str = "continuous"
    finish: str = "length"
    field: str = "content"
    eos: int = 0
    early: int = 0
    status: int = 200
    split: int = 0
    at: int = 5
    fault: str = ""
    failing: str = ""
    sparing: int = 0
    hangup: int = 0
    key: str = ""

    @classmethod
    def of(cls, model: str) -> Script:
        script = cls()
        kinds = {f.name: type(getattr(script, f.name)) for f in fields(cls)}
        for item in model.replace(";", ",").split(","):
            name, equals, value = item.partition("=")
            if equals and name in kinds:
                setattr(script, name, kinds[name](value))
        return script


@dataclass
class Truth:
    """What was really sent, and when."""

    id: str
    received: float
    unix: float = field(default_factory=lambda: time() - perf_counter())
    sends: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)


class Server:
    """Answers requests and writes down truth."""

    def __init__(self, truth: Path | None) -> None:
        self.truth = truth.open("a", encoding="utf-8", buffering=1) if truth else None
        self.metrics = b""
        self.chunks = self.seen = 0
        self.rng = random.Random(1)

    async def connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self.request(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        received = perf_counter()
        method, path, _ = head.split(b" ", 2)
        headers = {}
        for line in head.split(b"\r\n")[1:]:
            name, _, value = line.partition(b":")
            headers[name.lower()] = value.strip()
        length = int(headers.get(b"content-length", 0))
        body = await reader.readexactly(length) if length else b""
        if path == b"/metrics":
            if method == b"POST":
                self.metrics = body
            return plain(writer, 200, self.metrics, "text/plain")
        if path == b"/chunks":
            return plain(writer, 200, str(self.chunks).encode(), "text/plain")
        if method == b"GET":
            return plain(writer, 200, b'{"object":"list","data":[{"id":"replay","object":"model"}]}')
        asked = json.loads(body)
        script = Script.of(asked["model"])
        if script.key and headers.get(b"authorization") != f"Bearer {script.key}".encode():
            script.status = 401
        return await self.stream(writer, asked, script, received, chat=b"/chat/" in path)

    async def stream(
        self, writer: asyncio.StreamWriter, asked: dict, script: Script, received: float, *, chat: bool
    ) -> bool:
        if script.fault == "hang":
            await asyncio.Event().wait()
        if script.status != 200:
            error = {"error": {"message": f"replayed {script.status}", "code": script.status}}
            return plain(writer, script.status, json.dumps(error).encode())
        if script.fault == "notstream":
            return plain(writer, 200, b'{"object":"chat.completion","choices":[]}')
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        truth = Truth(asked["messages"][-1]["content"] if chat else asked["prompt"], received)
        self.seen += 1
        if script.failing and script.failing in truth.id and self.seen > script.sparing:
            script.fault, script.at = "error", 0
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        if script.early:
            writer.write(role_event(script, chat=chat))
        try:
            whole = await self.content(writer, script, truth, chat=chat)
        finally:
            if self.truth:
                self.truth.write(json.dumps(truth.__dict__) + "\n")
        return whole

    async def content(self, writer: asyncio.StreamWriter, script: Script, truth: Truth, *, chat: bool) -> bool:
        loop = asyncio.get_running_loop()
        sizes = [int(n) for n in script.tokens.split(":")]
        due = loop.time() + (script.gap if script.ttft < 0 else script.ttft)
        total = 0
        for n in range(script.chunks):
            total += sizes[n % len(sizes)]
            last = n == script.chunks - 1 and not script.eos
            data = event(script, delta(script, n), total, script.finish if last else None, chat=chat)
            wait = due - loop.time()
            if wait > 0:
                await asyncio.sleep(wait)
            if script.fault and n == script.at:
                data = await strike(script.fault, writer, data)
                if not data:
                    return False
            if n == 0 and not script.early and not writer.is_closing():
                writer.write(role_event(script, chat=chat))
            truth.sends.append(perf_counter())
            truth.tokens.append(total)
            self.chunks += 1
            await send(writer, chunk(data), script.split)
            due += script.gap + (self.rng.uniform(-script.jitter, script.jitter) if script.jitter else 0.0)
        if script.eos:
            total += 1
            wait = due - loop.time()
            if wait > 0:
                await asyncio.sleep(wait)
            truth.sends.append(perf_counter())
            truth.tokens.append(total)
            writer.write(chunk(event(script, {}, total, script.finish, chat=chat)))
        tail = b""
        if script.usage != "none":
            usage = {"prompt_tokens": 7, "completion_tokens": total, "total_tokens": total + 7}
            tail += b"data: " + json.dumps({"id": "r", "choices": [], "usage": usage}).encode() + b"\n\n"
        if script.fault != "nodone":
            tail += b"data: [DONE]\n\n"
        writer.write((chunk(tail) if tail else b"") + b"0\r\n\r\n")
        await writer.drain()
        return not script.hangup


def delta(script: Script, n: int) -> dict:
    word = WORDS[(n * n + n // 7) % len(WORDS)]
    if script.field == "tool":
        return {"tool_calls": [{"index": 0, "function": {"arguments": word}}]}
    return {} if script.field == "empty" else {script.field: word}


def role_event(script: Script, *, chat: bool) -> bytes:
    """Chat streams begin with an event that has no token; engines send it with the first token or before."""
    return chunk(event(script, {"role": "assistant", "content": ""}, 0, None, chat=chat)) if chat else b""


def event(script: Script, content: dict, total: int, finish: str | None, *, chat: bool) -> bytes:
    """One event with a choice, in the form that vLLM 0.32 sends."""
    finish = None if finish == "none" else finish
    choice = {"index": 0, "delta": content, "logprobs": None, "finish_reason": finish, "token_ids": None}
    if not chat:
        text = "".join(v for v in content.values() if isinstance(v, str))
        choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": finish}
    body = {
        "id": "chatcmpl-9d1c5f1be7a34f0d",
        "object": "chat.completion.chunk",
        "created": 1790000000,
        "model": "replay",
        "choices": [choice],
    }
    if script.usage == "continuous":
        body["usage"] = {"prompt_tokens": 7, "total_tokens": total + 7, "completion_tokens": total}
    return b"data: " + json.dumps(body, separators=(",", ":")).encode() + b"\n\n"


async def strike(fault: str, writer: asyncio.StreamWriter, data: bytes) -> bytes:
    """Do harm; empty if that ends the stream, else what to send in place of `data`."""
    if fault in {"reset", "close"}:
        if fault == "reset":
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort() if fault == "reset" else writer.close()
        return b""
    if fault == "stall":
        await asyncio.Event().wait()
    return {
        "json": b'data: {"id": "r", "choices": [\n\n',
        "utf8": b'data: {"id": "r", "x": "\xff\xfe"}\n\n',
        "huge": b'data: {"x": "' + b"x" * 10_000_000 + b'"}\n\n',
        "error": b'data: {"error": {"message": "replayed engine failure", "code": 500}}\n\n',
    }.get(fault, data)


async def send(writer: asyncio.StreamWriter, data: bytes, split: int) -> None:
    if writer.is_closing():
        raise ConnectionResetError("the client has gone")
    if split:
        for start in range(0, len(data), split):
            writer.write(data[start : start + split])
            await asyncio.sleep(0)
    else:
        writer.write(data)
    if len(data) > 65536:
        await writer.drain()


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def plain(writer: asyncio.StreamWriter, status: int, body: bytes, kind: str = "application/json") -> bool:
    writer.write(
        f"HTTP/1.1 {status} Replayed\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body
    )
    return True


async def main() -> None:
    parser = argparse.ArgumentParser(description="streaming endpoint with known send times")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--tls", nargs=2, type=Path, metavar=("CERT", "KEY"))
    parser.add_argument("--truth", type=Path)
    options = parser.parse_args()
    context = None
    if options.tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*options.tls)
    replay = Server(options.truth)
    server = await asyncio.start_server(
        replay.connection, "127.0.0.1", options.port, ssl=context, backlog=4096, limit=1 << 22
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    asyncio.get_running_loop().add_reader(0, lambda: os._exit(0) if not os.read(0, 1) else None)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    try:
        import uvloop

        uvloop.run(main())
    except ImportError:
        asyncio.run(main())
