"""Sockets to one endpoint, under gevent. Nothing here knows what it carries."""

from __future__ import annotations

import errno
import os
import socket as std_socket
from dataclasses import dataclass
from time import perf_counter
from typing import Any
from urllib.parse import urlsplit

import gevent
from gevent import socket as gsocket
from gevent import ssl as gssl

from outrider.load.outcome import Outcome

RECV_BYTES = 16 * 1024


class ExchangeError(Exception):
    """A request that did not get to the end of its response.

    Attributes:
        outcome: how it ended.
    """

    def __init__(self, outcome: Outcome, text: str) -> None:
        self.outcome = outcome
        super().__init__(text)


@dataclass(frozen=True, slots=True)
class Address:
    """Where a base URL points.

    Attributes:
        host, port: TCP address.
        tls: speak TLS.
        prefix: path before `/v1`, without a slash at its end.
        host_header: value of the Host header.
    """

    host: str
    port: int
    tls: bool
    prefix: str
    host_header: str

    @classmethod
    def of(cls, url: str) -> Address:
        """Take a base URL (validated by LoadPlan) apart."""
        parts = urlsplit(url)
        tls = parts.scheme == "https"
        host = parts.hostname or ""
        return cls(
            host, parts.port or (443 if tls else 80), tls, parts.path.rstrip("/"), parts.netloc.rpartition("@")[2]
        )


class Connection:
    """One connected socket, used by one greenlet at a time.

    While a response is read, one watcher stays armed on the socket and one timer on its silence, where
    gevent's own `recv` would first try in vain, then arm and disarm both for every single read: at one chunk
    a read that is a third of the client's work (benchmarks/README.md). TLS has to read through its own
    buffer and goes gevent's way.

    Attributes:
        used: requests that it has carried.
    """

    def __init__(self, address: Address, timeout_s: float) -> None:
        self.used = 0
        self._idle_s = 0.0
        self._heard_at = 0.0
        self._stalled = False
        self._watch: Any = None
        try:
            self._socket: Any = gsocket.create_connection((address.host, address.port), timeout=timeout_s)
        except std_socket.gaierror as error:
            raise ExchangeError(Outcome.UNRESOLVED, f"{address.host}: {error.strerror}") from error
        except TimeoutError as error:
            raise ExchangeError(Outcome.CONNECT_TIMEOUT, f"no connection within {timeout_s} s") from error
        except OSError as error:
            refused = error.errno == errno.ECONNREFUSED
            raise ExchangeError(Outcome.REFUSED if refused else Outcome.UNREACHABLE, str(error)) from error
        self._socket.setsockopt(std_socket.IPPROTO_TCP, std_socket.TCP_NODELAY, 1)
        self._hub = gevent.get_hub()
        self._tls = address.tls
        if address.tls:
            self._wrap(address, timeout_s)
        self._fd = self._socket.fileno()

    def _wrap(self, address: Address, timeout_s: float) -> None:
        try:
            context = gssl.create_default_context()
            self._socket = context.wrap_socket(self._socket, server_hostname=address.host)
        except TimeoutError as error:
            self._socket.close()
            raise ExchangeError(Outcome.TLS, f"the handshake did not end within {timeout_s} s") from error
        except OSError as error:  # SSLError is one; so is a peer that hangs up
            self._socket.close()
            raise ExchangeError(Outcome.TLS, str(error)) from error

    def send(self, data: bytes, idle_s: float) -> None:
        """Write all of `data`; a peer that takes none of it for `idle_s` has stalled."""
        self.used += 1
        try:
            self._socket.settimeout(idle_s)
            self._socket.sendall(data)
        except TimeoutError as error:
            raise ExchangeError(Outcome.STALLED, f"the request could not be written within {idle_s} s") from error
        except OSError as error:
            raise ExchangeError(Outcome.RESET, str(error)) from error

    def listen(self, idle_s: float) -> None:
        """Begin to read a response whose silence may last `idle_s`; `rest` ends it."""
        self._idle_s = idle_s
        self._socket.settimeout(idle_s)
        if self._tls:
            return
        self._stalled = False
        self._heard_at = perf_counter()
        if self._watch is None:
            self._watch = (self._hub.loop.io(self._fd, 1), gevent.getcurrent())
            self._watch[0].start(self._watch[1].switch)
            self._timer = self._hub.loop.timer(idle_s)
            self._timer.start(self._check_silence)
        else:  # the limit changes within a response
            self._timer.stop()
            self._timer = self._hub.loop.timer(idle_s)
            self._timer.start(self._check_silence)

    def rest(self) -> None:
        """Stop listening."""
        if self._watch is not None:
            self._watch[0].stop()
            self._timer.stop()
            self._watch = None

    def _check_silence(self) -> None:
        """The timer fired: nothing came for the limit, or something came meanwhile and it has to go on."""
        left_s = self._heard_at + self._idle_s - perf_counter()
        if left_s > 0:
            self._timer = self._hub.loop.timer(left_s)
            self._timer.start(self._check_silence)
        elif self._watch is not None:
            self._stalled = True
            self._watch[1].switch()

    def receive(self) -> tuple[bytes, float]:
        """One read and its time, taken before anything looks at the bytes; empty at the connection's end."""
        try:
            if self._tls:
                return self._socket.recv(RECV_BYTES), perf_counter()
            while True:
                self._hub.switch()  # until readable, or silent for too long
                if self._stalled:
                    break
                try:
                    data = os.read(self._fd, RECV_BYTES)
                except BlockingIOError:
                    continue
                at = self._heard_at = perf_counter()
                return data, at
        except TimeoutError:
            pass
        except gssl.SSLError as error:
            raise ExchangeError(Outcome.TLS, str(error)) from error
        except OSError as error:
            raise ExchangeError(Outcome.RESET, str(error)) from error
        raise ExchangeError(Outcome.STALLED, f"no byte for {self._idle_s:g} s")

    def close(self) -> None:
        """Close without waiting for anything."""
        self.rest()
        self._socket.close()


class Pool:
    """Idle connections to one address, the most recently used first.

    Args:
        address: where to.
        connect_timeout_s: limit for TCP and TLS set-up.
    """

    def __init__(self, address: Address, connect_timeout_s: float) -> None:
        self.address = address
        self._timeout_s = connect_timeout_s
        self._idle: list[Connection] = []

    def take(self) -> Connection:
        """An idle connection, or a new one."""
        return self._idle.pop() if self._idle else self.fresh()

    def fresh(self) -> Connection:
        """A new connection."""
        return Connection(self.address, self._timeout_s)

    def give(self, connection: Connection) -> None:
        """Hand back a connection that may carry another request."""
        self._idle.append(connection)

    def close(self) -> None:
        """Close all idle connections."""
        while self._idle:
            self._idle.pop().close()
