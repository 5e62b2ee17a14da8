"""Sockets to one endpoint, under gevent. Nothing here knows what it carries."""

from __future__ import annotations

import errno
import socket as std_socket
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from gevent import socket as gsocket
from gevent import ssl as gssl

from outrider.load.outcome import Outcome

RECV_BYTES = 32 * 1024


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
    """One connected socket.

    Attributes:
        used: requests that it has carried.
    """

    def __init__(self, address: Address, timeout_s: float) -> None:
        self.used = 0
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
        if address.tls:
            self._wrap(address, timeout_s)

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

    def send(self, data: bytes, timeout_s: float) -> None:
        """Write all of `data`."""
        self.used += 1
        try:
            self._socket.settimeout(timeout_s)
            self._socket.sendall(data)
        except TimeoutError as error:
            raise ExchangeError(Outcome.STALLED, f"the request could not be written within {timeout_s} s") from error
        except OSError as error:
            raise ExchangeError(Outcome.RESET, str(error)) from error

    def receive(self, timeout_s: float) -> bytes:
        """One read; empty at the end of the connection. `send` has set the inactivity limit."""
        try:
            return self._socket.recv(RECV_BYTES)  # type: ignore[no-any-return]
        except TimeoutError as error:
            raise ExchangeError(Outcome.STALLED, f"no byte for {timeout_s} s") from error
        except gssl.SSLError as error:
            raise ExchangeError(Outcome.TLS, str(error)) from error
        except OSError as error:
            raise ExchangeError(Outcome.RESET, str(error)) from error

    def receive_soon(self, timeout_s: float) -> bytes:
        """One read that waits no longer than `timeout_s`."""
        before = self._socket.gettimeout()
        self._socket.settimeout(timeout_s)
        try:
            return self.receive(timeout_s)
        finally:
            self._socket.settimeout(before)

    def close(self) -> None:
        """Close without waiting for anything."""
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
