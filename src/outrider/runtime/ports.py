"""Who listens on a TCP port, and which ports are free."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import socket
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from outrider.errors import RuntimeStateError

if TYPE_CHECKING:
    from collections.abc import Iterable

_LISTEN = "0A"  # TCP_LISTEN in include/net/tcp_states.h
_NEARBY = 100
LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True)
class Listener:
    """One listening socket of this network namespace.

    Attributes:
        address: local address as text; `0.0.0.0` and `::` mean all.
        port: TCP port.
        uid: user that opened it.
        inode: the socket's inode, which links it to a process.
    """

    address: str
    port: int
    uid: int
    inode: int


def parse_listeners(text: str) -> list[Listener]:
    """Read `/proc/net/tcp` or `/proc/net/tcp6`; addresses there are 32-bit words in the machine's byte order."""
    found = []
    for line in text.splitlines()[1:]:
        columns = line.split()
        if len(columns) < 10 or columns[3] != _LISTEN:
            continue
        address, _, port = columns[1].partition(":")
        words = [int(address[i : i + 8], 16) for i in range(0, len(address), 8)]
        packed = struct.pack(f"={len(words)}I", *words)
        found.append(Listener(str(ipaddress.ip_address(packed)), int(port, 16), int(columns[7]), int(columns[9])))
    return found


def listeners(port: int) -> list[Listener]:
    """Sockets that listen on a port, on any address."""
    found: list[Listener] = []
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(FileNotFoundError):  # no IPv6
            found += parse_listeners(Path("/proc/net", table).read_text("ascii"))
    return [listener for listener in found if listener.port == port]


def conflicts(listener: Listener, host: str) -> bool:
    """Whether a socket of ours on `host` would meet this listener.

    `::` counts as meeting IPv4, because a socket takes both unless told otherwise.
    """
    ours, theirs = ipaddress.ip_address(resolve(host)), ipaddress.ip_address(listener.address)
    if isinstance(theirs, ipaddress.IPv6Address) and theirs.ipv4_mapped:
        theirs = theirs.ipv4_mapped
    if ours.version == theirs.version:
        return ours == theirs or ours.is_unspecified or theirs.is_unspecified
    wide = ours if ours.version == 6 else theirs
    return wide.is_unspecified


def resolve(host: str) -> str:
    """Numeric address of a host that we are to listen on.

    Raises:
        RuntimeStateError: there is no such host.
    """
    try:
        return str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])
    except socket.gaierror as error:
        raise RuntimeStateError(
            f"{host!r} is not an address of this machine",
            evidence=str(error),
            next_step="listen on 127.0.0.1 or on an address that `ip addr` shows",
        ) from error


def holders(sockets: Iterable[Listener]) -> dict[int, int]:
    """PIDs that hold these sockets, as inode -> PID; other users' processes are visible to root only."""
    wanted = {f"socket:[{listener.inode}]": listener.inode for listener in sockets}
    found: dict[int, int] = {}
    for process in Path("/proc").iterdir() if wanted else ():
        if process.name.isdigit():
            with contextlib.suppress(OSError):
                for descriptor in (process / "fd").iterdir():
                    with contextlib.suppress(OSError):
                        if (inode := wanted.get(str(descriptor.readlink()))) is not None:
                            found.setdefault(inode, int(process.name))
    return found


def _name_owner(listener: Listener, pid: int | None) -> str:
    where = f"{listener.address}:{listener.port}"
    if pid is not None:
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            return f"{where} is held by pid {pid} of user {process.username()}: {' '.join(process.cmdline())}"
    return f"{where} is held by a process of user ID {listener.uid} that this user may not look at"


def describe_owners(port: int, host: str) -> str:
    """Name whoever listens where `host:port` would listen; one line a socket, empty if nobody does."""
    met = [listener for listener in listeners(port) if conflicts(listener, host)]
    pids = holders(met)
    return "\n".join(_name_owner(listener, pids.get(listener.inode)) for listener in met)


def _bind_error(port: int, host: str) -> OSError | None:
    address = resolve(host)
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: TIME_WAIT is no obstacle
        try:
            probe.bind((address, port))
        except OSError as error:
            return error
    return None


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Whether a server could listen there now."""
    return _bind_error(port, host) is None


def require_free(port: int, host: str) -> None:
    """Refuse a port that is taken.

    A server that shares ports (SO_REUSEPORT, which vLLM sets) would start beside another one and get every
    second request, so this is looked at before a start and not left to the engine.

    Raises:
        RuntimeStateError: taken, privileged, or not an address of this machine; names the owner.
    """
    error = _bind_error(port, host)
    if error is None:
        return
    if error.errno == errno.EADDRINUSE:
        raise RuntimeStateError(
            f"port {port} on {host} is taken",
            evidence=describe_owners(port, host) or f"{error.strerror}; its owner is gone already",
            next_step=f"stop that process, or choose another port ({free_port(port + 1, host)} is free)",
        )
    raise RuntimeStateError(
        f"port {port} on {host} cannot be listened on",
        evidence=str(error),
        next_step="choose a port from 1024 to 65535 and an address that `ip addr` shows",
    )


def free_port(preferred: int | None = None, host: str = "127.0.0.1") -> int:
    """A port that is free now: the preferred one, else one of the next hundred, else any.

    Between this answer and the engine's own bind another process can take it; a start then fails and says so.
    """
    if preferred is not None:
        for port in range(preferred, min(preferred + _NEARBY, 65536)):
            if is_free(port, host):
                return port
    address = resolve(host)
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM) as any_port:
        any_port.bind((address, 0))
        return int(any_port.getsockname()[1])
